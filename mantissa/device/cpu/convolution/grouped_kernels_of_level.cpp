// Convolutions in groups of few channels: the table of a level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first, since the bodies use them.
#include "mantissa/device/cpu/convolution/body_depthwise.h"
#include "mantissa/device/cpu/convolution/body_grouped_gradient.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void sums_over_windows(const GroupedSums& p, std::int64_t image, Range rows, Range blocks, float* scratch) {
    if (p.source.lanes_from == LaneSource::image)
        depthwise_sums(p, image, rows, blocks, scratch);
    else
        grouped_sums(p, image, rows, blocks, scratch);
}

}  // namespace

const GroupedKernels& MANTISSA_OF_LEVEL(grouped_kernels)() {
    static constexpr GroupedKernels table = {
        .name = MANTISSA_LEVEL,
        .pairs = Vector::pairs,
        .pack = pack_grouped_filter,
        .sums = sums_over_windows,
        .filter_gradient = grouped_filter_gradient,
        .finish = finish_grouped_filter,
    };
    return table;
}

}  // namespace mantissa::on_cpu
