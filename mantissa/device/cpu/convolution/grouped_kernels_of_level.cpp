// Convolutions in groups of few channels: the table of a level.
#include "mantissa/device/cpu/rows/image_lanes_of_level.h"
// The lanes come first: the body is written in terms of them.
#include "mantissa/device/cpu/convolution/body_grouped.h"
#include "mantissa/device/cpu/convolution/body_grouped_gradient.h"

namespace mantissa::inline v0::on_cpu {

GroupedKernels MANTISSA_OF_LEVEL(grouped_kernels)() {
    return {
        .name = MANTISSA_LEVEL,
        .pairs = Vector::pairs,
        .pack = pack_grouped_filter,
        .sums = grouped_sums,
        .filter_gradient = grouped_filter_gradient,
        .finish = finish_grouped_filter,
    };
}

}  // namespace mantissa::on_cpu
