// What a block of finished sums becomes: one function a level. Plain data, since sources compiled for one
// instruction set include it.
#pragma once

#include <cstdint>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

/// out = cast(activation(sum + bias[column]) + residual); pointers are at the block's first element.
struct EpilogueBlock {
    float* sums = nullptr;
    std::int64_t ld = 0;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    const void* bias = nullptr;  ///< null: none
    DType bias_dtype = DType::f32;
    bool gelu_tanh = false;
    const void* residual = nullptr;  ///< null: none
    DType residual_dtype = DType::f32;
    std::int64_t residual_ld = 0;
    void* out = nullptr;  ///< may be `sums`
    DType out_dtype = DType::f32;
    std::int64_t out_ld = 0;
    /// Too large for the caches, and only written: whole lines may go past them.
    bool streaming = false;
};

using EpilogueKernel = void (*)(const EpilogueBlock& block);

void finish_block_generic(const EpilogueBlock& block);
void finish_block_avx2(const EpilogueBlock& block);
void finish_block_avx512(const EpilogueBlock& block);
void finish_block_avx512bf16(const EpilogueBlock& block);

}  // namespace mantissa::on_cpu
