// Numbers that a product must store for the operands that algorithms are timed with, so that an algorithm
// that stores others is refused.
#pragma once

#include <cstddef>
#include <vector>

#include "mantissa/device/cuda/kernels/products.h"

namespace mantissa::inline v0::on_cuda {

/// Operands to time products with, as stored: 65,536 numbers between -1 and 1, whole numbers between -127 and
/// 127; larger operands repeat them. With zeros a GPU makes less heat, and is quicker.
std::vector<std::byte> numbers_to_multiply(DType dtype, Layout layout = Layout::row_major);

/// Elements of y, and of GELU's input where it is stored, computed in FP64: 64 places, among them corners of
/// the first and of the last matrix. All operands, and y's former contents, are `numbers_to_multiply`.
///
/// The allowed error is the error of sums in FP32 and one rounding to the stored format. It is 2^-23 of the
/// largest partial sum for each addition, and half a unit in the last place. Where operands are rounded or
/// cut to TF32, 2^-9 of the sum of absolute values comes on top, and with FP8 2^-11. With GELU, 2^-10 of its
/// operand does, since a GPU's tanh has an error of 2^-11. With GELU's gradient, so does a rounding of the
/// product itself: on an H200, all algorithms of one such product were off by 1.2 times the bound of one
/// rounding. Sums of GELU's gradient over rows are not in the sample.
std::vector<ExpectedNumber> sample_of(const Product& product);

}  // namespace mantissa::on_cuda
