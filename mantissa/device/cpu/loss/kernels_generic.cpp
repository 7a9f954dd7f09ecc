// The joint loss in plain C++, for any machine.
#include "mantissa/device/cpu/rows/lanes_generic.h"
// The lanes come first: what follows is written in terms of them.
#include "mantissa/device/cpu/loss/power_of_two_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES bool any(Lanes::Mask mask) {
    const Lanes::I4 set = (mask.part[0] | mask.part[1]) | (mask.part[2] | mask.part[3]);
    return (set[0] | set[1] | set[2] | set[3]) != 0;
}

}  // namespace
}  // namespace mantissa::on_cpu

// The bodies are written in terms of these.
#include "mantissa/device/cpu/loss/body_exponentials.h"

namespace mantissa::inline v0::on_cpu {

const LossKernels& loss_kernels_generic() {
    static constexpr LossKernels table = loss_table;
    return table;
}

}  // namespace mantissa::on_cpu
