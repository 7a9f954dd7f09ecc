// Sums and maxima over any axes: in two launches where there are too few results to keep the GPU busy. What
// is added in which order follows from the shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

/// One reduction, or one of chunks and one over the chunks.
struct Stages {
    std::shared_ptr<const GpuKernel> first, second;  // second: null
    std::int64_t first_blocks = 0, second_blocks = 0;
    std::int64_t partial_bytes = 0;

    std::int64_t launches() const { return second ? 2 : 1; }

    void queue(const Context& context, std::uint64_t x, std::uint64_t partials, std::uint64_t y) const;
};

struct Reduced {
    bool maximum = false;
    DType from = DType::f32, sums = DType::f32, to = DType::f32;
};

Stages stages_of(Context& context, const Shape& shape, const std::vector<std::int64_t>& axes,
                 const Reduced& what);

}  // namespace mantissa::on_cuda
