// The joint loss for AVX2 with FMA.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: what follows is written in terms of them.
#include "mantissa/device/cpu/loss/power_of_two_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES bool any(Lanes::Mask mask) {
    return _mm256_movemask_ps(_mm256_or_ps(mask.low, mask.high)) != 0;
}

}  // namespace
}  // namespace mantissa::on_cpu

// The bodies are written in terms of these.
#include "mantissa/device/cpu/loss/body_exponentials.h"

namespace mantissa::inline v0::on_cpu {

const LossKernels& loss_kernels_avx2() {
    static constexpr LossKernels table = loss_table;
    return table;
}

}  // namespace mantissa::on_cpu
