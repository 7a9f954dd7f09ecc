// The matrix modes in AVX2.
#include "mantissa/device/cpu/modes/lanes_avx2.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_avx2(MatrixMode mode) {
    switch (mode) {
        case MatrixMode::f64:
            return mode_kernel_of<Avx2F64Lanes>();
        case MatrixMode::f16:
            return mode_kernel_of<Avx2F16Lanes>();
        case MatrixMode::s8:
        case MatrixMode::s4:
            return mode_kernel_of<Avx2S8Lanes>();
        case MatrixMode::b1_exclusive_or:
            return mode_kernel_of<Avx2B1Lanes<BitProduct::exclusive_or>>();
        case MatrixMode::b1_conjunction:
            return mode_kernel_of<Avx2B1Lanes<BitProduct::conjunction>>();
    }
    return {};
}

}  // namespace mantissa::on_cpu
