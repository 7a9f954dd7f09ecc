// Matrix products by cuBLASLt, for operations that are made of several.
#pragma once

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// A product of one batch of matrices, as the library is asked for it.
struct Product {
    struct Matrix {
        DType dtype = DType::f32;
        std::int64_t rows = 0, columns = 0;  ///< as they are stored, row by row
        bool transposed = false;
    };
    Matrix a, b, y;
    std::int64_t batch = 1;
    bool bias = false, tf32 = false;
    bool adds = false;  ///< to what lies in y
};

/// Operands a, b and a bias where there is one. None of its extents is 0.
OrReason<PreparedKernel> prepare_product(Context& context, const Product& product);

}  // namespace mantissa::on_cuda
