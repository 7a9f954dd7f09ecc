#include "mantissa/device/cpu/modes/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/modes/matrix_mode.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/row_mode.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Up to so many rows the weights are read row by row, as they lie: packing them costs about as much.
constexpr std::int64_t most_single_rows = 8;
/// Bytes of weights of a block: some six microseconds of reading, and all rows of x pass while they are in
/// L2.
constexpr std::int64_t block_bytes = 64 << 10;

float most_of(MatrixMode mode) { return mode == MatrixMode::s4 ? 7.0f : 127.0f; }

std::int64_t bytes_of_row(MatrixMode mode, std::int64_t depth) {
    return mode == MatrixMode::s4 ? depth / 2 : depth;
}

void widen(ConstView x, std::int64_t first, std::int64_t count, float* to) {
    const auto from = [&](auto* typed, auto turned) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = turned(typed[first + i]);
    };
    if (x.type == DType::bf16)
        return from(static_cast<const BF16*>(x.data), [](BF16 v) { return to_f32(v); });
    if (x.type == DType::f16) return from(static_cast<const FP16*>(x.data), [](FP16 v) { return to_f32(v); });
    check(x.type == DType::f32, "quantised rows are f32, bf16 or f16");
    std::memcpy(to, static_cast<const float*>(x.data) + first,
                static_cast<std::size_t>(count) * sizeof(float));
}

/// As bits, so that it is a maximum of whole numbers; a NaN is larger than all else.
float largest_size(const float* x, std::int64_t count) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
    return std::bit_cast<float>(largest);
}

struct RowScale {
    float factor, scale;
};

RowScale scale_of(const float* x, std::int64_t count, float most) {
    const float largest = largest_size(x, count);
    return {largest == 0 ? 0 : most / largest, largest / most};
}

RowModeKernels row_mode_kernels(Isa isa) {
    if (isa == Isa::generic) return row_mode_generic();
    return isa >= Isa::avx512 && has_avx512_vnni() ? row_mode_avx512_vnni() : row_mode_avx2();
}

/// Rows of x as single-row kernels read them.
struct SingleRows {
    std::int64_t stride;  ///< bytes of a row
    std::int8_t* numbers;
    float* scales;
    std::int32_t* sums;

    SingleRows(const QuantizedProduct& p, std::byte* memory)
        : stride((p.mode == MatrixMode::s4 ? 2 : 1) * in_lines(bytes_of_row(p.mode, p.k))),
          numbers(reinterpret_cast<std::int8_t*>(memory)),
          scales(reinterpret_cast<float*>(memory + p.m * stride)),
          sums(reinterpret_cast<std::int32_t*>(memory + p.m * stride + in_lines(4 * p.m))) {}
    static std::int64_t bytes(const QuantizedProduct& p) {
        return p.m * 2 * in_lines(p.k) + 2 * in_lines(4 * p.m);
    }
};

void quantize_single_row(const QuantizedProduct& p, std::int64_t row, const SingleRows& rows, float* values,
                         std::int8_t* staged, const NarrowingKernels& narrow) {
    widen(p.x, row * p.k, p.k, values);
    const float most = most_of(p.mode);
    const RowScale scale = scale_of(values, p.k, most);
    rows.scales[row] = scale.scale;
    std::int8_t* const to = rows.numbers + row * rows.stride;
    std::memset(to, 0, static_cast<std::size_t>(rows.stride));
    std::int8_t* const whole = p.mode == MatrixMode::s4 ? staged : to;
    narrow.to_s8(values, scale.factor, whole, p.k);
    std::int32_t sum = 0;
    if (p.mode == MatrixMode::s4) {
        std::int8_t* const odd = to + rows.stride / 2;
        for (std::int64_t k = 0; k < p.k; k += 2) {
            to[k / 2] = std::clamp<std::int8_t>(whole[k], -8, 7);
            odd[k / 2] = std::clamp<std::int8_t>(whole[k + 1], -8, 7);
            sum += to[k / 2] + odd[k / 2];
        }
    } else {
        for (std::int64_t k = 0; k < p.k; ++k) sum += whole[k];
    }
    rows.sums[row] = sum;
}

/// Sums lie where the results come.
void scale_sums(const QuantizedProduct& p, std::int64_t row, float row_scale, std::int64_t first,
                std::int64_t count) {
    float* const y = p.y + row * p.n + first;
    const float* const scales = p.scales + first;
    const float* const bias = p.bias ? p.bias + first : nullptr;
    for (std::int64_t j = 0; j < count; ++j) {
        std::int32_t sum;
        std::memcpy(&sum, y + j, sizeof sum);
        const float scaled = static_cast<float>(sum) * (row_scale * scales[j]);
        y[j] = bias ? scaled + bias[j] : scaled;
    }
}

void multiply_single_rows(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    const SingleRows rows(p, p.workspace);
    auto* const values = reinterpret_cast<float*>(p.workspace + SingleRows::bytes(p));
    auto* const staged = reinterpret_cast<std::int8_t*>(values + in_lines(p.k));
    for (std::int64_t row = 0; row < p.m; ++row)
        quantize_single_row(p, row, rows, values, staged, narrowing_kernels(isa));
    const RowModeKernels kernels = row_mode_kernels(isa);
    const RowModeKernel kernel = p.mode == MatrixMode::s4 ? kernels.s4 : kernels.s8;
    const std::int64_t bytes = bytes_of_row(p.mode, p.k);
    const std::int64_t columns =
        std::max<std::int64_t>(16, block_bytes / std::max<std::int64_t>(1, bytes) / 16 * 16);
    pool.for_each_block((p.n + columns - 1) / columns, [&](std::int64_t block, int) {
        const std::int64_t first = block * columns, count = std::min(columns, p.n - first);
        for (std::int64_t row = 0; row < p.m; ++row) {
            kernel({.row = rows.numbers + row * rows.stride,
                    .row_sum = rows.sums[row],
                    .b = p.w + first * bytes,
                    .bytes = bytes,
                    .cols = count,
                    .sums = reinterpret_cast<std::int32_t*>(p.y + row * p.n + first)});
            scale_sums(p, row, rows.scales[row], first, count);
        }
    });
}

ModeProblem mode_problem(const QuantizedProduct& p) { return {.mode = p.mode, .m = p.m, .n = p.n, .k = p.k}; }

/// Where the parts of the workspace begin.
struct MatrixWorkspace {
    std::int64_t numbers, scales, quantize, multiply, end;

    MatrixWorkspace(const QuantizedProduct& p, Isa isa, int threads) {
        numbers = 0;
        scales = in_lines(p.m * bytes_of_row(p.mode, p.k));
        quantize = scales + in_lines(4 * p.m);
        multiply = quantize + in_lines(quantize_rows_workspace(p.k, threads));
        end = multiply + static_cast<std::int64_t>(workspace_bytes(mode_problem(p), isa, threads));
    }
};

void multiply_matrices(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    const MatrixWorkspace at(p, isa, pool.threads());
    auto* const numbers = reinterpret_cast<std::uint8_t*>(p.workspace + at.numbers);
    auto* const scales = reinterpret_cast<float*>(p.workspace + at.scales);
    quantize_rows({.mode = p.mode,
                   .rows = p.m,
                   .depth = p.k,
                   .x = p.x,
                   .numbers = numbers,
                   .scales = scales,
                   .workspace = reinterpret_cast<float*>(p.workspace + at.quantize)},
                  pool, isa);
    multiply(mode_problem(p), {.a = numbers, .b = p.w, .d = p.y},
             {p.workspace + at.multiply, static_cast<std::size_t>(at.end - at.multiply)}, pool, isa);
    pool.for_each_block(p.m, [&](std::int64_t row, int) { scale_sums(p, row, scales[row], 0, p.n); });
}

}  // namespace

const char* name_of_row_mode(Isa isa) { return row_mode_kernels(isa).name; }

std::int64_t quantize_rows_workspace(std::int64_t depth, int threads) {
    return threads * in_lines(depth * static_cast<std::int64_t>(sizeof(float)));
}

void quantize_rows(const QuantizeRows& p, ThreadPool& pool, Isa isa) {
    const NarrowingKernels& narrow = narrowing_kernels(isa);
    const std::int64_t per_worker =
        quantize_rows_workspace(p.depth, 1) / static_cast<std::int64_t>(sizeof(float));
    pool.for_each_block(p.rows, [&](std::int64_t row, int worker) {
        float* const values = p.workspace + worker * per_worker;
        widen(p.x, row * p.depth, p.depth, values);
        const RowScale scale = scale_of(values, p.depth, most_of(p.mode));
        p.scales[row] = scale.scale;
        std::uint8_t* const to = p.numbers + row * bytes_of_row(p.mode, p.depth);
        if (p.mode == MatrixMode::s4)
            narrow.to_s4(values, scale.factor, to, p.depth);
        else
            narrow.to_s8(values, scale.factor, reinterpret_cast<std::int8_t*>(to), p.depth);
    });
}

std::int64_t quantized_product_workspace(const QuantizedProduct& p, Isa isa, int threads) {
    if (p.m <= most_single_rows) return SingleRows::bytes(p) + 5 * in_lines(p.k);
    return MatrixWorkspace(p, isa, threads).end;
}

void quantized_product(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    if (const std::string reason = refusal(mode_problem(p)); !reason.empty()) throw UserError(reason);
    if (p.m <= most_single_rows)
        multiply_single_rows(p, pool, isa);
    else
        multiply_matrices(p, pool, isa);
}

}  // namespace mantissa::on_cpu
