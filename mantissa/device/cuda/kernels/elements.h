// Kernels of one element a thread, from a problem's types.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// How an operand is read to fill a shape: repeated along axes that it is stretched over.
codegen::Strided stretched(const Type& operand, const Shape& shape);

/// Adds the kernel, with axes merged where that changes nothing, and a name that is an identifier.
std::shared_ptr<const GpuKernel> add_element_kernel(Context& context, codegen::ElementKernel kernel);

/// A launch of one kernel over all operands and the first output.
Launch launch_of_elements(Context& context, codegen::ElementKernel kernel);

}  // namespace mantissa::on_cuda
