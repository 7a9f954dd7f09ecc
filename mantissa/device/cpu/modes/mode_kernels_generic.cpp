// The matrix modes in plain C++.
#include "mantissa/device/cpu/modes/lanes_generic.h"
#include "mantissa/device/cpu/modes/mode_body.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

ModeKernel mode_kernel_generic(MatrixMode mode) {
    switch (mode) {
        case MatrixMode::f64:
            return mode_kernel_of<GenericF64Lanes>();
        case MatrixMode::f16:
            return mode_kernel_of<GenericF16Lanes>();
        case MatrixMode::s8:
        case MatrixMode::s4:
            return mode_kernel_of<GenericS8Lanes>();
        case MatrixMode::b1_exclusive_or:
            return mode_kernel_of<GenericB1Lanes<BitProduct::exclusive_or>>();
        case MatrixMode::b1_conjunction:
            return mode_kernel_of<GenericB1Lanes<BitProduct::conjunction>>();
    }
    return {};
}

}  // namespace mantissa::on_cpu
