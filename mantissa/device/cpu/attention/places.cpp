#include "mantissa/device/cpu/attention/places.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

namespace mantissa::inline v0::on_cpu {

namespace {

struct Axis {
    std::int64_t stride, extent;
};

/// Axes with the outermost first; axes of one element are left out.
std::array<Axis, 3> by_stride(const HeadExtents& extents, const HeadStrides& strides) {
    std::array axes = {Axis{strides.sequence, extents.sequences}, Axis{strides.head, extents.heads},
                       Axis{strides.position, extents.positions}};
    for (Axis& axis : axes)
        if (axis.extent == 1) axis.stride = 0;
    std::ranges::sort(axes, [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
    return axes;
}

/// Whether some row starts less than `width` elements from `distance`. A stride passes everything within it,
/// so only the multiples around `distance` come into question.
bool meets(std::span<const Axis> axes, std::int64_t distance, std::int64_t width) {
    if (axes.empty() || axes[0].stride == 0) return std::abs(distance) < width;
    const std::int64_t below = distance / axes[0].stride;
    for (std::int64_t steps = below - 1; steps <= below + 1; ++steps)
        if (std::abs(steps) < axes[0].extent &&
            meets(axes.subspan(1), distance - steps * axes[0].stride, width))
            return true;
    return false;
}

}  // namespace

std::int64_t reach(const HeadExtents& extents, const HeadStrides& strides) {
    return (extents.sequences - 1) * strides.sequence + (extents.heads - 1) * strides.head +
           (extents.positions - 1) * strides.position + extents.head_size;
}

bool rows_are_apart(const HeadExtents& extents, const HeadStrides& strides) {
    const std::array axes = by_stride(extents, strides);
    std::int64_t within = extents.head_size;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        if (axis->extent == 1) continue;
        if (axis->stride < within) return false;
        within += (axis->extent - 1) * axis->stride;
    }
    return true;
}

bool tensors_are_apart(const HeadExtents& extents, const HeadStrides& strides, std::int64_t distance) {
    return !meets(by_stride(extents, strides), distance, extents.head_size);
}

}  // namespace mantissa::on_cpu
