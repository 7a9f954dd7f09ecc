#include "mantissa/device/cpu/modes/quantized.h"

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/modes/byte_product.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/row_mode.h"
#include "mantissa/device/cpu/modes/row_scales.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Up to so many rows the weights are read row by row, as they lie: packing them costs about as much.
constexpr std::int64_t max_single_rows = 8;
constexpr float most = 127.0f;

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
        : stride(in_lines(p.k)),
          numbers(reinterpret_cast<std::int8_t*>(memory)),
          scales(reinterpret_cast<float*>(memory + p.m * stride)),
          sums(reinterpret_cast<std::int32_t*>(memory + p.m * stride + in_lines(4 * p.m))) {}
    static std::int64_t bytes(const QuantizedProduct& p) {
        return p.m * in_lines(p.k) + 2 * in_lines(4 * p.m);
    }
};

void quantize_single_row(const QuantizedProduct& p, std::int64_t row, const SingleRows& rows, float* values,
                         NarrowToS8 narrow) {
    widen(p.x, row * p.k, p.k, values);
    const RowScale scale = scale_of(values, p.k, most);
    rows.scales[row] = scale.scale;
    std::int8_t* const to = rows.numbers + row * rows.stride;
    std::memset(to + p.k, 0, static_cast<std::size_t>(rows.stride - p.k));
    narrow(values, scale.factor, to, p.k);
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < p.k; ++k) sum += to[k];
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
    for (std::int64_t row = 0; row < p.m; ++row) quantize_single_row(p, row, rows, values, narrow_to_s8(isa));
    const RowModeKernel kernel = row_mode_kernels(isa).s8;
    const std::int64_t columns = columns_of_few_rows(p.n, p.k);
    pool.for_each_block(ceil_div(p.n, columns), [&](std::int64_t block, int) {
        const std::int64_t first = block * columns, count = std::min(columns, p.n - first);
        kernel({.rows = rows.numbers,
                .row_stride = rows.stride,
                .row_sums = rows.sums,
                .count = p.m,
                .b = p.w + first * p.k,
                .bytes = p.k,
                .cols = count,
                .sums = reinterpret_cast<std::int32_t*>(p.y) + first,
                .leading = p.n});
        for (std::int64_t row = 0; row < p.m; ++row) scale_sums(p, row, rows.scales[row], first, count);
    });
}

ByteProduct byte_product(const QuantizedProduct& p) {
    return {.m = p.m, .n = p.n, .k = p.k, .a = nullptr, .b = p.w, .d = p.y};
}

/// Where the parts of the workspace begin.
struct MatrixWorkspace {
    std::int64_t numbers, scales, quantize, multiply, end;

    MatrixWorkspace(const QuantizedProduct& p, Isa isa, int threads) {
        numbers = 0;
        scales = in_lines(p.m * p.k);
        quantize = scales + in_lines(4 * p.m);
        multiply = quantize + in_lines(quantize_rows_workspace(p.k, threads));
        end = multiply + static_cast<std::int64_t>(byte_product_workspace(byte_product(p), isa, threads));
    }
};

void multiply_matrices(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    const MatrixWorkspace at(p, isa, pool.threads());
    auto* const numbers = reinterpret_cast<std::uint8_t*>(p.workspace + at.numbers);
    auto* const scales = reinterpret_cast<float*>(p.workspace + at.scales);
    quantize_rows({.rows = p.m,
                   .depth = p.k,
                   .x = p.x,
                   .numbers = numbers,
                   .scales = scales,
                   .workspace = reinterpret_cast<float*>(p.workspace + at.quantize)},
                  pool, isa);
    ByteProduct product = byte_product(p);
    product.a = numbers;
    multiply_bytes(product, {p.workspace + at.multiply, static_cast<std::size_t>(at.end - at.multiply)}, pool,
                   isa);
    pool.for_each_block(p.m, [&](std::int64_t row, int) { scale_sums(p, row, scales[row], 0, p.n); });
}

}  // namespace

const char* name_of_row_mode(Isa isa) { return row_mode_kernels(isa).name; }

std::int64_t quantize_rows_workspace(std::int64_t depth, int threads) {
    return threads * in_lines(depth * static_cast<std::int64_t>(sizeof(float)));
}

void quantize_rows(const QuantizeRows& p, ThreadPool& pool, Isa isa) {
    const NarrowToS8 narrow = narrow_to_s8(isa);
    const std::int64_t per_worker =
        quantize_rows_workspace(p.depth, 1) / static_cast<std::int64_t>(sizeof(float));
    pool.for_each_block(p.rows, [&](std::int64_t row, int worker) {
        float* const values = p.workspace + worker * per_worker;
        widen(p.x, row * p.depth, p.depth, values);
        const RowScale scale = scale_of(values, p.depth, most);
        p.scales[row] = scale.scale;
        narrow(values, scale.factor, reinterpret_cast<std::int8_t*>(p.numbers + row * p.depth), p.depth);
    });
}

std::int64_t quantized_product_workspace(const QuantizedProduct& p, Isa isa, int threads) {
    if (p.m <= max_single_rows) return SingleRows::bytes(p) + in_lines(4 * p.k);
    return MatrixWorkspace(p, isa, threads).end;
}

void quantized_product(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    if (const std::string reason = refusal(byte_product(p)); !reason.empty()) throw UserError(reason);
    if (p.m <= max_single_rows)
        multiply_single_rows(p, pool, isa);
    else
        multiply_matrices(p, pool, isa);
}

}  // namespace mantissa::on_cpu
