// Compile to LLVM IR: each function adds a function to a module. One source a kind.
#pragma once

#include <string>

#include "mantissa/codegen/attention_kernel.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/codegen/depthwise_kernel.h"
#include "mantissa/codegen/filter_gradient_kernel.h"
#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/codegen/image_kernel.h"
#include "mantissa/codegen/quantized_kernel.h"
#include "mantissa/codegen/rounding_kernel.h"

namespace llvm {
class Module;
}

namespace mantissa::inline v0::codegen {

/// A loop nest, over a range of rows or of elements: on the host of the type `FusedFunction`, for a GPU a
/// kernel.
void emit(llvm::Module& module, const std::string& name, const LoopNest& nest, const CodeTarget& target);

/// The code of a score function for a block of pairs, of the type `ScoreFunction`.
void emit(llvm::Module& module, const std::string& name, const ScoreCode& code, const HostFeatures& features);

/// A kernel of a grid, under its own name, for a GPU.
void emit(llvm::Module& module, const GridKernel& kernel);

// Kernels of a grid, one source a kind. Each adds the kernel, under the name, to a module for a GPU.
void emit(llvm::Module& module, const std::string& name, const PoolKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const ConvolutionKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const DepthwiseKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const FilterGradientKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const PeakKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const QuantizeKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const WeightGroupsKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const QuantizedRowsKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const ScaledSumsKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const RoundingKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const TensorScaleKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const SeenTilesKernel& kernel);
void emit(llvm::Module& module, const std::string& name, const AttentionKernel& kernel);
/// The kernels that make gradients.
void emit_attention_gradient(llvm::Module& module, const std::string& name, const AttentionKernel& kernel);

}  // namespace mantissa::codegen
