// The epilogue of a block of finished sums: one function a level. Plain data, since sources compiled for one
// instruction set include it.
#pragma once

#include <cstdint>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

/// Called once on every block of finished sums, while it is in L1, by the thread that computed it. Blocks
/// cover the output exactly once, in no promised order, and may be a few rows high. sums[i * ld + j] is the
/// sum of row row0 + i, column col0 + j; rows of all batch entries are counted through (entry * m + row,
/// entry = outer * batch[1] + inner). It may change the sums and must write every output itself: the
/// contraction writes nothing.
using EpilogueFunction = void (*)(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0,
                                  std::int64_t rows, std::int64_t cols, const void* args);

/// out = cast(sum + addend + bias[column]); pointers are at the block's first element.
struct EpilogueBlock {
    float* sums = nullptr;
    std::int64_t ld = 0;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const float* addend = nullptr;  ///< other sums; null: none
    std::int64_t addend_ld = 0;
    const void* bias = nullptr;  ///< null: none
    DType bias_dtype = DType::f32;
    void* out = nullptr;  ///< may be `sums` or `addend`
    DType out_dtype = DType::f32;
    std::int64_t out_ld = 0;
    /// The output is too large for the caches, and only written: whole lines may go past them.
    bool streaming = false;
};

using EpilogueKernel = void (*)(const EpilogueBlock& block);

void finish_block_generic(const EpilogueBlock& block);
void finish_block_avx2(const EpilogueBlock& block);
void finish_block_avx512(const EpilogueBlock& block);
void finish_block_avx512bf16(const EpilogueBlock& block);

}  // namespace mantissa::on_cpu
