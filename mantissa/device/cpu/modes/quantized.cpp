#include "mantissa/device/cpu/modes/quantized.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/byte_product.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/row_mode.h"
#include "mantissa/device/cpu/modes/row_scales.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t group = weights_of_group;
static_assert(numbers_together == groups_together * group);
/// Up to so many rows the weights are read as they lie: making FP32 of them costs about as much.
constexpr std::int64_t max_rows_as_they_lie = 8;
/// Rows of w that become FP32 at a time: with 1,024 columns 2 MB, as contractions like their operands.
constexpr std::int64_t widened_rows = 512;

std::int64_t groups_of(std::int64_t depth) { return ceil_div(depth, group); }

/// A group of a row of x: bytes in the order of memory, the last ones zero, and their scale.
struct GroupOfX {
    alignas(32) std::int8_t numbers[group];
    float scale;

    GroupOfX(ConstView x, std::int64_t first, std::int64_t count, NarrowToS8 narrow) {
        alignas(64) float values[group] = {};
        widen(x, first, count, values);
        const RowScale of = scale_of(values, group, 127.0f);
        narrow(values, of.factor, numbers, group);
        scale = of.scale;
    }
};

GroupedRowsKernels grouped_rows_kernels(Isa isa) {
    if (isa == Isa::generic) return grouped_rows_generic();
    return isa >= Isa::avx512 && has_avx512_vnni() ? grouped_rows_avx512_vnni() : grouped_rows_avx2();
}

/// Rows of x as the kernels of few rows read them.
class FewRows {
  public:
    FewRows(const GroupedProduct& p, std::byte* memory)
        : p_(p),
          x_(reinterpret_cast<FourOfX*>(memory)),
          values_(reinterpret_cast<float*>(memory +
                                           p.m * fours(p.k) * static_cast<std::int64_t>(sizeof(FourOfX)))) {}
    static std::int64_t bytes(const GroupedProduct& p) {
        return fours(p.k) * (p.m * static_cast<std::int64_t>(sizeof(FourOfX)) + numbers_together * 4);
    }

    void quantize(const GroupedRowsKernels& kernels) const {
        std::fill(values_ + p_.k, values_ + fours(p_.k) * numbers_together, 0.0f);
        for (std::int64_t row = 0; row < p_.m; ++row) {
            widen(p_.x, row * p_.k, p_.k, values_);
            kernels.quantize(values_, fours(p_.k), x_ + row, p_.m);
        }
    }

    const FourOfX* data() const { return x_; }

  private:
    static std::int64_t fours(std::int64_t k) { return ceil_div(k, numbers_together); }

    const GroupedProduct& p_;
    FourOfX* x_;     // [fours, m]
    float* values_;  // one row of x, widened
};

void add_bias(const GroupedProduct& p, std::int64_t row, std::int64_t first, std::int64_t count) {
    if (!p.bias) return;
    float* const y = p.y + row * p.n + first;
    for (std::int64_t j = 0; j < count; ++j) y[j] += p.bias[first + j];
}

void multiply_few_rows(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    const FewRows rows(p, p.workspace);
    const GroupedRowsKernels kernels = grouped_rows_kernels(isa);
    rows.quantize(kernels);
    const std::int64_t bytes = p.k / 2, columns = columns_of_few_rows(p.n, bytes);
    pool.for_each_block(ceil_div(p.n, columns), [&](std::int64_t block, int) {
        const std::int64_t first = block * columns, count = std::min(columns, p.n - first);
        kernels.multiply({.x = rows.data(),
                          .count = p.m,
                          .b = p.w + first * bytes,
                          .scales = p.scales + first * groups_of(p.k),
                          .bytes = bytes,
                          .groups = groups_of(p.k),
                          .cols = count,
                          .to_next_block = (pool.threads() - 1) * columns * bytes,
                          .sums = p.y + first,
                          .leading = p.n});
        for (std::int64_t row = 0; row < p.m; ++row) add_bias(p, row, first, count);
    });
}

/// Some rows of w at a time, in FP32.
ContractionProblem part_in_f32(const GroupedProduct& p, std::int64_t columns) {
    ContractionProblem problem{.m = p.m, .n = columns, .k = p.k};
    problem.a = {.leading = p.k};
    problem.b = {.transpose = Transpose::yes, .leading = p.k};
    problem.out = {.leading = p.n};
    problem.epilogue.bias = p.bias != nullptr;
    return problem;
}

/// Where the parts of the workspace begin.
struct ManyRowsWorkspace {
    std::int64_t x, w, multiply, end;

    ManyRowsWorkspace(const GroupedProduct& p, Isa isa, int threads) {
        const std::int64_t columns = std::min(widened_rows, p.n), rest = p.n % columns;
        x = 0;
        w = in_lines(p.m * p.k * 4);
        multiply = w + in_lines(columns * p.k * 4);
        std::size_t most = 0;
        for (const std::int64_t part : {columns, rest})
            if (part > 0)
                most =
                    std::max(most, prepare_contraction(part_in_f32(p, part), isa).workspace_bytes(threads));
        end = multiply + static_cast<std::int64_t>(most);
    }
};

void widen_row_of_x(const GroupedProduct& p, std::int64_t row, NarrowToS8 narrow, float* to) {
    for (std::int64_t first = 0; first < p.k; first += group) {
        const std::int64_t count = std::min(group, p.k - first);
        const GroupOfX of(p.x, row * p.k + first, count, narrow);
        for (std::int64_t i = 0; i < count; ++i) to[first + i] = static_cast<float>(of.numbers[i]) * of.scale;
    }
}

void widen_row_of_w(const GroupedProduct& p, std::int64_t row, float* to) {
    for (std::int64_t first = 0; first < p.k; first += group) {
        const float scale = to_f32(p.scales[row * groups_of(p.k) + first / group]);
        const std::uint8_t* const packed = p.w + (row * p.k + first) / 2;
        const std::int64_t count = std::min(group, p.k - first);
        for (std::int64_t i = 0; i < count / 2; ++i) {
            // The top bit of two's complement in four bits, turned over, makes the number plus 8.
            const int two = packed[i] ^ 0x88;
            to[first + 2 * i] = static_cast<float>((two & 15) - 8) * scale;
            to[first + 2 * i + 1] = static_cast<float>((two >> 4) - 8) * scale;
        }
    }
}

void multiply_many_rows(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    const ManyRowsWorkspace at(p, isa, pool.threads());
    const NarrowToS8 narrow = narrow_to_s8(isa);
    auto* const x = reinterpret_cast<float*>(p.workspace + at.x);
    auto* const w = reinterpret_cast<float*>(p.workspace + at.w);
    pool.for_each_block(p.m, [&](std::int64_t row, int) { widen_row_of_x(p, row, narrow, x + row * p.k); });
    for (std::int64_t first = 0; first < p.n; first += widened_rows) {
        const std::int64_t columns = std::min(widened_rows, p.n - first);
        pool.for_each_block(ceil_div(columns, 16), [&](std::int64_t block, int) {
            for (std::int64_t j = block * 16; j < std::min(columns, block * 16 + 16); ++j)
                widen_row_of_w(p, first + j, w + j * p.k);
        });
        contract(prepare_contraction(part_in_f32(p, columns), isa),
                 {.a = x, .b = w, .out = p.y + first, .bias = p.bias ? p.bias + first : nullptr},
                 {p.workspace + at.multiply, static_cast<std::size_t>(at.end - at.multiply)}, pool);
    }
}

}  // namespace

const char* name_of_grouped_rows(Isa isa) { return grouped_rows_kernels(isa).name; }

std::int64_t quantize_groups_workspace(std::int64_t depth, int threads) {
    return threads * in_lines(depth * static_cast<std::int64_t>(sizeof(float)));
}

void quantize_groups(const QuantizeGroups& p, ThreadPool& pool) {
    check(p.depth % 2 == 0, "rows of four bits are even");
    const std::int64_t per_worker =
        quantize_groups_workspace(p.depth, 1) / static_cast<std::int64_t>(sizeof(float));
    pool.for_each_block(p.rows, [&](std::int64_t row, int worker) {
        float* const values = p.workspace + worker * per_worker;
        widen(p.x, row * p.depth, p.depth, values);
        for (std::int64_t first = 0; first < p.depth; first += group) {
            const std::int64_t count = std::min(group, p.depth - first);
            const WeightGroup found =
                group_of(std::span<const float>(values + first, static_cast<std::size_t>(count)));
            p.scales[row * groups_of(p.depth) + first / group] = found.scale;
            for (std::int64_t i = 0; i < count; ++i)
                set_s4(p.numbers, row * p.depth + first + i, found.numbers[static_cast<std::size_t>(i)]);
        }
    });
}

std::int64_t grouped_product_workspace(const GroupedProduct& p, Isa isa, int threads) {
    if (p.m <= max_rows_as_they_lie) return FewRows::bytes(p);
    return ManyRowsWorkspace(p, isa, threads).end;
}

void grouped_product(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    check(p.k % 2 == 0, "rows of four bits are even");
    if (p.m <= max_rows_as_they_lie)
        multiply_few_rows(p, pool, isa);
    else
        multiply_many_rows(p, pool, isa);
}

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
