// The inner kernels of byte_product.h, one for each level. A panel holds lines of an operand as words,
// [words, lines], or [lines, words] where a kernel wants rows whole: a word is four bytes that follow each
// other in the depth. A panel of b begins with the numbers that its sums start from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::inline v0::on_cpu {

/// d = a_panel^T b_panel.
struct ByteTile {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    std::int64_t words = 0;
    void* d = nullptr;         ///< 32 bits
    std::int64_t leading = 0;  ///< of d, in elements
    std::int64_t rows = 0;     ///< 1 ... height
    std::int64_t cols = 0;     ///< 1 ... width
};

struct ByteKernel {
    void (*multiply)(const ByteTile& tile) = nullptr;
    /// Called by a thread before and after it multiplies; null where there is nothing to do.
    void (*begin)() = nullptr;
    void (*end)() = nullptr;
    std::int64_t height = 0;     ///< lines of a panel of a
    std::int64_t width = 0;      ///< of b
    std::int64_t word_unit = 1;  ///< panels are a multiple of so many words deep
    bool rows_whole = false;     ///< panels of a are [lines, words]
    /// Bytes of a are this much too large, to be unsigned; sums start where that is mended.
    int row_shift = 0;
};

ByteKernel byte_kernel_generic();
ByteKernel byte_kernel_avx2();
ByteKernel byte_kernel_avx512_vnni();
ByteKernel byte_kernel_amx();

}  // namespace mantissa::on_cpu
