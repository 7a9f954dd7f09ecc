// Binary matrices, the ones counted by vpopcntd.
#include "mantissa/device/cpu/modes/lanes_avx512vpopcntdq.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_avx512_vpopcntdq(MatrixMode mode) {
    return mode == MatrixMode::b1_conjunction ? mode_kernel_of<Avx512B1Lanes<BitProduct::conjunction>>()
                                              : mode_kernel_of<Avx512B1Lanes<BitProduct::exclusive_or>>();
}

}  // namespace mantissa::on_cpu
