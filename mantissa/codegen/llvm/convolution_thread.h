// Base of kernels of convolutions: where a window's taps lie, and the products that are added up.
#pragma once

#include "mantissa/codegen/llvm/grid_thread.h"
#include "mantissa/graph/convolution_axis.h"

namespace mantissa::inline v0::codegen {

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
    /// Its inverse.
    Place output_place(const ConvolutionAxis& axis, llvm::Value* pixel, llvm::Value* tap);
};

}  // namespace mantissa::codegen
