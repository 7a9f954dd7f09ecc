// Base of kernels that make an element a thread, or so many, over a grid of blocks: the thread's number, and
// the way from a number to a place in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/codegen/llvm/gpu_code.h"
#include "mantissa/graph/convolution_axis.h"

namespace mantissa::inline v0::codegen {

constexpr int lanes_of_warp = 32;

struct OwnBuilder {
    explicit OwnBuilder(llvm::Module& module);
    std::shared_ptr<llvm::IRBuilderBase> own_builder;
};

class GridThread : OwnBuilder, protected GpuCode {
  protected:
    /// Makes a kernel of `parameters` addresses, with `grid_threads` threads to a block; `table`: where its
    /// parts lie.
    GridThread(llvm::Module& module, const std::string& name, std::size_t parameters, PartTable table = {});

    /// i32, as 64 bits.
    llvm::Value* load_index(llvm::Value* base, llvm::Value* element);

    /// A number below the product of extents as an index for each, outermost first. Below 2^31 elements it is
    /// taken apart in 32 bits, which is quicker.
    std::vector<llvm::Value*> indices_of(llvm::Value* number, const std::vector<std::int64_t>& extents);
    llvm::Value* place_of(const std::vector<llvm::Value*>& indices, const std::vector<std::int64_t>& strides,
                          std::int64_t offset);

    llvm::Value* word(std::int64_t value);  ///< i32
    llvm::Value* number(double value);      ///< f32
    llvm::Value* bits(llvm::Value* x);      ///< of an f32, as i32
    llvm::Value* larger(llvm::Value* a, llvm::Value* b);
    /// Reduces an i32 over the lanes of a warp by that intrinsic; all lanes come here.
    llvm::Value* across_warp(unsigned reduction, llvm::Value* x);
    /// The largest i32 of all threads of the block. Once in a kernel.
    llvm::Value* largest_of_block(llvm::Value* own);

    /// An FP32 number, as numerics/tf32.h rounds it.
    llvm::Value* rounded_to_tf32(llvm::Value* x);

    /// Numbers in the kernel's own memory, with these bits.
    llvm::Value* numbers_of(const char* name, DType dtype, const std::vector<std::uint64_t>& bits);

    llvm::Value* number_ = nullptr;  ///< of the thread in the grid
};

/// Base of kernels of convolutions: where a window's taps lie, and the products that are added up.
class ConvolutionThread : protected GridThread {
  protected:
    using GridThread::GridThread;

    llvm::Value* zero();
    /// a b + sum, rounded once.
    llvm::Value* product(llvm::Value* a, llvm::Value* b, llvm::Value* sum);

    llvm::Value* is_inside(llvm::Value* place, std::int64_t extent);

    /// A place along an axis, and whether there is one.
    struct Place {
        llvm::Value *at, *is_one;
    };
    /// ConvolutionAxis::image_place.
    Place image_place(const ConvolutionAxis& axis, llvm::Value* place, llvm::Value* tap);
    /// The inverse of image_place.
    Place output_place(const ConvolutionAxis& axis, llvm::Value* pixel, llvm::Value* tap);
};

}  // namespace mantissa::codegen
