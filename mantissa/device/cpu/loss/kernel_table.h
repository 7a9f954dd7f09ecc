// One table of functions of the joint loss per instruction-set level: what becomes of logits, each over a
// part of a chunk of rows. Who runs which part on which thread is decided in linear_cross_entropy.cpp, from
// shapes alone. Plain data without functions, since files compiled for one instruction set include it.
//
// Logits x become y = 2^(x log2(e) - base) as soon as they are summed. The base is a whole number that keeps
// y in range: it belongs to one row and one group of columns, those that one thread makes in ascending order.
// When all of a row is there, y times a factor of the row and the group is the gradient of the logit.
#pragma once

#include <cstdint>

#include "mantissa/device/cpu/rows/kernel_table.h"

namespace mantissa::cpu {

inline constexpr float log2_of_e = 0x1.715476p+0f;

/// A chunk of rows, and what is kept of it.
struct Exponentials {
    std::int64_t rows = 0;
    std::int64_t classes = 0;               ///< columns from there on become 0
    const std::int32_t* targets = nullptr;  // [rows]
    View y = {};                            // [rows, stride]; null: not wanted
    std::int64_t stride = 0;
    /// y is too large for the caches: whole lines may go past them.
    bool streaming = false;
    float* target_logits = nullptr;  // [rows]
    float* sums = nullptr;           // [groups, rows, 16]: of y, each lane by itself
    float* bases = nullptr;          // [groups, rows]
};

/// Logits of some rows and columns of one group, which begins at `group_begin`.
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

/// The sum of y over all groups is total * 2^base.
struct RowTotals {
    std::int64_t rows = 0;
    std::int64_t groups = 0;
    const float* sums = nullptr;   // [groups, rows, 16]
    const float* bases = nullptr;  // [groups, rows]
    float* totals = nullptr;       // [rows]
    float* base = nullptr;         // [rows]
};

/// Some columns of one group: to = y * factor, and at targets what is given.
struct LogitGradients {
    const void* y = nullptr;  // [rows, y_leading]
    std::int64_t y_leading = 0;
    void* to = nullptr;  // [rows, to_leading]
    std::int64_t to_leading = 0;
    DType type = DType::f32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t column = 0;                  ///< of the first
    const float* factors = nullptr;           // [rows]
    const std::int32_t* targets = nullptr;    // [rows]
    const float* target_gradients = nullptr;  // [rows]
};

struct LossKernels {
    void (*exponentials)(const Exponentials&, const LogitBlock&);
    void (*row_totals)(const RowTotals&, Range rows);
    void (*logit_gradients)(const LogitGradients&);
};

const LossKernels& loss_kernels_generic();
const LossKernels& loss_kernels_avx2();
const LossKernels& loss_kernels_avx512();
/// For CPUs with AVX512_BF16, whose rounding to BF16 is an instruction.
const LossKernels& loss_kernels_avx512_bf16();

}  // namespace mantissa::cpu
