// Which kernel a mode runs on.
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/convert.h"
#include "mantissa/device/cpu/modes/mode_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// That which multiplies what the operands' panels hold.
ModeKernel product_kernel(MatrixMode mode, Isa isa) {
    if (isa == Isa::generic) return mode_kernel_generic(mode);
    if (isa == Isa::avx2) return mode_kernel_avx2(mode);
    switch (mode) {
        case MatrixMode::f64:
            return mode_kernel_avx512_f64();
        case MatrixMode::f16:
            return has_avx512_fp16() ? mode_kernel_avx512_fp16() : mode_kernel_avx512_f16();
        case MatrixMode::s8:
        case MatrixMode::s4:
            if (isa == Isa::amx) return mode_kernel_amx_s8();
            return has_avx512_vnni() ? mode_kernel_avx512_vnni() : mode_kernel_avx2(mode);
        case MatrixMode::b1_exclusive_or:
        case MatrixMode::b1_conjunction:
            return has_avx512_vpopcntdq() ? mode_kernel_avx512_vpopcntdq(mode) : mode_kernel_avx2(mode);
    }
    throw InternalError("a matrix mode outside of its enumeration");
}

}  // namespace

ModeKernel mode_kernel(MatrixMode mode, Isa isa) {
    ModeKernel kernel = product_kernel(mode, isa);
    if (mode == MatrixMode::f16 && kernel.word_bytes == sizeof(float))
        kernel.widen = convert_kernels(isa).widen_fp16;
    return kernel;
}

}  // namespace mantissa::on_cpu
