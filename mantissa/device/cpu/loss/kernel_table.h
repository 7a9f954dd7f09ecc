// One table of functions of the fused linear cross-entropy per instruction-set level: they work on logits,
// each over a part of a chunk of tokens. linear_cross_entropy.cpp divides the parts among threads, from
// shapes alone. Plain data without functions, since files compiled for one instruction set include it.
//
// Classes lie along the rows, tokens in the lanes. Logits x become y = 2^(x log2(e) - base) as soon as they
// are summed. The base is a whole number that keeps y in range: it belongs to one token and one group of
// classes, which one thread makes in ascending order. When all classes are there, y times a factor of the
// token and the group is the gradient of the logit.
#pragma once

#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::inline v0::on_cpu {

inline constexpr float log2_of_e = 0x1.715476p+0f;

/// A chunk of tokens, and the numbers kept of it.
struct Exponentials {
    std::int64_t classes = 0;  ///< rows from there on become 0
    View y = {};               // [columns, stride]; null: not wanted
    std::int64_t stride = 0;   ///< of tokens
    /// y is too large for the caches: whole lines may go past them.
    bool streaming = false;
    float* sums = nullptr;   // [groups, stride]: of y
    float* bases = nullptr;  // [groups, stride]
};

/// Logits of some classes of one group, which begins with class `group_begin`, and some tokens.
struct LogitBlock {
    const float* logits = nullptr;  // [rows, leading]
    std::int64_t leading = 0;
    std::int64_t row = 0;
    std::int64_t column = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t group = 0;
    std::int64_t group_begin = 0;
};

/// The sum of y over all groups is total * 2^base; bases of groups become scale / total * 2^(theirs - base).
struct TokenTotals {
    std::int64_t groups = 0;
    std::int64_t stride = 0;
    const float* sums = nullptr;  // [groups, stride]
    float* bases = nullptr;       // [groups, stride]
    float scale = 1;
    float* totals = nullptr;       // [tokens]
    float* total_bases = nullptr;  // [tokens]
};

/// For some classes of one group: to = y * factor.
struct LogitGradients {
    const void* y = nullptr;  // [rows, y_leading]
    std::int64_t y_leading = 0;
    void* to = nullptr;  // [rows, to_leading]
    std::int64_t to_leading = 0;
    DType type = DType::f32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    const float* factors = nullptr;  // [columns]
};

struct LossKernels {
    void (*exponentials)(const Exponentials&, const LogitBlock&);
    void (*token_totals)(const TokenTotals&, Range tokens);
    void (*logit_gradients)(const LogitGradients&);
};

const LossKernels& loss_kernels_generic();
const LossKernels& loss_kernels_avx2();
const LossKernels& loss_kernels_avx512();
/// For CPUs with AVX512_BF16, which round to BF16 by an instruction.
const LossKernels& loss_kernels_avx512bf16();

}  // namespace mantissa::on_cpu
