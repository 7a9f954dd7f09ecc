// The joint loss for AVX-512.
#include "mantissa/device/cpu/loss/power_of_two_avx512.h"

// The bodies are written in terms of these.
#include "mantissa/device/cpu/loss/body_exponentials.h"

namespace mantissa::inline v0::on_cpu {

const LossKernels& loss_kernels_avx512() {
    static constexpr LossKernels table = loss_table;
    return table;
}

}  // namespace mantissa::on_cpu
