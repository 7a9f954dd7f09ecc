// The inner kernels of the matrix modes, one for each mode and level. A panel holds lines of an operand as
// words, [words, lines], or [lines, words] where a kernel wants rows whole: a word is an FP64 number, an FP16
// number (as FP32 where that is what the level multiplies), four bytes or 32 bits that follow each other in
// the depth. A panel of b begins with the numbers that its sums start from.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/modes/modes.h"

namespace mantissa::inline v0::on_cpu {

/// d = c + a_panel^T b_panel.
struct ModeTile {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    std::int64_t words = 0;
    const void* c = nullptr;  ///< null: zero
    void* d = nullptr;
    std::int64_t leading = 0;  ///< of c and d, in elements
    std::int64_t rows = 0;     ///< 1 ... height
    std::int64_t cols = 0;     ///< 1 ... width
};

struct ModeKernel {
    void (*multiply)(const ModeTile& tile) = nullptr;
    /// Called by a thread before and after it multiplies; null where there is nothing to do.
    void (*begin)() = nullptr;
    void (*end)() = nullptr;
    std::int64_t height = 0;  ///< lines of a panel of a
    std::int64_t width = 0;   ///< of b
    std::int64_t word_bytes = 4;
    std::int64_t sum_bytes = 4;
    std::int64_t word_unit = 1;  ///< panels are a multiple of so many words deep
    bool rows_whole = false;     ///< panels of a are [lines, words]
    /// Makes words of `count` numbers of an operand, a ConvertKernel of the contraction; null: they are
    /// words, or parts of words, as they are.
    void (*widen)(const void* from, std::int64_t count, void* const* to) = nullptr;
    /// Bytes of a are this much too large, to be unsigned; sums start where that is mended.
    int row_shift = 0;
};

/// That of a level on this CPU. s4 has the kernel of s8: its panels hold bytes.
ModeKernel mode_kernel(MatrixMode mode, Isa isa);

ModeKernel mode_kernel_generic(MatrixMode mode);
ModeKernel mode_kernel_avx2(MatrixMode mode);
ModeKernel mode_kernel_avx512_f64();
/// For FP16 numbers widened to FP32.
ModeKernel mode_kernel_avx512_f16();
ModeKernel mode_kernel_avx512_fp16();
ModeKernel mode_kernel_avx512_vnni();
ModeKernel mode_kernel_amx_s8();
/// For one of the two binary modes.
ModeKernel mode_kernel_avx512_vpopcntdq(MatrixMode mode);

}  // namespace mantissa::on_cpu
