#include "mantissa/device/cpu/modes/quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t group = weights_of_group;
static_assert(numbers_together == groups_together * group);
/// Rows of w that become FP32 at a time: with 1,024 columns 2 MB, as contractions like their operands.
constexpr std::int64_t widened_rows = 512;

std::int64_t groups_of(std::int64_t depth) { return ceil_div(depth, group); }

std::int64_t float_lines(std::int64_t count) {
    return in_lines(count * static_cast<std::int64_t>(sizeof(float)));
}

/// `count` elements of x from `first` on, f32, bf16 or f16.
void widen(ConstView x, std::int64_t first, std::int64_t count, float* to) {
    const auto from = [&](auto* typed) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = to_f32(typed[first + i]);
    };
    if (count == 0) return;
    if (x.type == DType::bf16) return from(static_cast<const BF16*>(x.data));
    if (x.type == DType::f16) return from(static_cast<const FP16*>(x.data));
    check(x.type == DType::f32, "quantised rows are f32, bf16 or f16");
    std::memcpy(to, static_cast<const float*>(x.data) + first,
                static_cast<std::size_t>(count) * sizeof(float));
}

/// Whole numbers for `count` elements of x from `first` on; their scale. `values`: scratch.
float quantize(ConstView x, std::int64_t first, std::int64_t count, NarrowToS8 narrow, float* values,
               std::int8_t* to) {
    widen(x, first, count, values);
    const RowScale scale = scale_of(values, count, 127.0f);
    narrow(values, scale.factor, to, count);
    return scale.scale;
}

/// Rows of w that a block multiplies with few rows of x: some microseconds of reading, and all rows of x pass
/// while it is in L2; but sixteen blocks or more, so that no thread waits long for the last. 64 KB began so
/// often that products took a tenth longer.
std::int64_t columns_of_few_rows(std::int64_t n, std::int64_t bytes) {
    constexpr std::int64_t block_bytes = 128 << 10, min_blocks = 16;
    const std::int64_t columns = std::min(block_bytes / std::max<std::int64_t>(1, bytes), n / min_blocks);
    return std::max<std::int64_t>(16, columns / 16 * 16);
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

    void quantize(QuantizeFours quantize_fours) const {
        std::fill(values_ + p_.k, values_ + fours(p_.k) * numbers_together, 0.0f);
        for (std::int64_t row = 0; row < p_.m; ++row) {
            widen(p_.x, row * p_.k, p_.k, values_);
            quantize_fours(values_, fours(p_.k), x_ + row, p_.m);
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
    rows.quantize(of_level(isa, quantize_fours_generic, quantize_fours_avx2, quantize_fours_avx512));
    const GroupedRowsKernel multiply = isa == Isa::generic  ? multiply_grouped_rows_generic
                                       : has_byte_dots(isa) ? multiply_grouped_rows_avx512_vnni
                                                            : multiply_grouped_rows_avx2;
    const std::int64_t bytes = p.k / 2, columns = columns_of_few_rows(p.n, bytes);
    pool.for_each_block(ceil_div(p.n, columns), [&](std::int64_t block, int) {
        const std::int64_t first = block * columns, count = std::min(columns, p.n - first);
        multiply({.x = rows.data(),
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
    for (std::int64_t first = 0; first < p.k; first += group, to += group) {
        const std::int64_t count = std::min(group, p.k - first);
        float values[group];
        std::int8_t numbers[group];
        const float scale = quantize(p.x, row * p.k + first, count, narrow, values, numbers);
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(numbers[i]) * scale;
    }
}

void multiply_many_rows(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    const ManyRowsWorkspace at(p, isa, pool.threads());
    const NarrowToS8 narrow = narrow_to_s8(isa);
    const WidenCodes widen_codes = of_level(isa, widen_codes_generic, widen_codes_avx2, widen_codes_avx512);
    CodedSource codes = source_of({Layout::int4, p.n, p.k}, p.w);
    codes.scales = p.scales;
    auto* const x = reinterpret_cast<float*>(p.workspace + at.x);
    auto* const w = reinterpret_cast<float*>(p.workspace + at.w);
    pool.for_each_block(p.m, [&](std::int64_t row, int) { widen_row_of_x(p, row, narrow, x + row * p.k); });
    for (std::int64_t first = 0; first < p.n; first += widened_rows) {
        const std::int64_t columns = std::min(widened_rows, p.n - first);
        pool.for_each_block(ceil_div(columns, 16), [&](std::int64_t block, int) {
            const std::int64_t row = block * 16;
            widen_codes({.from = codes,
                         .row = first + row,
                         .rows = std::min<std::int64_t>(16, columns - row),
                         .columns = p.k,
                         .to = w + row * p.k,
                         .stride = p.k});
        });
        contract(prepare_contraction(part_in_f32(p, columns), isa),
                 {.a = x, .b = w, .out = p.y + first, .bias = p.bias ? p.bias + first : nullptr},
                 {p.workspace + at.multiply, static_cast<std::size_t>(at.end - at.multiply)}, pool);
    }
}

}  // namespace

NarrowToS8 narrow_to_s8(Isa isa) {
    return of_level(isa, narrow_to_s8_generic, narrow_to_s8_avx2, narrow_to_s8_avx512);
}

const char* name_of_bytes(Isa isa) {
    return isa == Isa::generic ? "generic" : has_byte_dots(isa) ? "avx512_vnni" : "avx2";
}

std::int64_t quantize_groups_workspace(std::int64_t depth, int threads) {
    return threads * float_lines(depth);
}

void quantize_groups(const QuantizeGroups& p, ThreadPool& pool) {
    check(p.depth % 2 == 0, "rows of four bits are even");
    const std::int64_t per_worker = float_lines(p.depth) / 4;
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
    if (p.m <= max_rows_in_place) return FewRows::bytes(p);
    return ManyRowsWorkspace(p, isa, threads).end;
}

void grouped_product(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    check(p.k % 2 == 0, "rows of four bits are even");
    if (p.m <= max_rows_in_place)
        multiply_few_rows(p, pool, isa);
    else
        multiply_many_rows(p, pool, isa);
}

std::int64_t quantize_rows_workspace(std::int64_t depth, int threads) { return threads * float_lines(depth); }

void quantize_rows(const QuantizeRows& p, ThreadPool& pool, Isa isa) {
    const NarrowToS8 narrow = narrow_to_s8(isa);
    pool.for_each_block(p.rows, [&](std::int64_t row, int worker) {
        p.scales[row] =
            quantize(p.x, row * p.depth, p.depth, narrow, p.workspace + worker * float_lines(p.depth) / 4,
                     reinterpret_cast<std::int8_t*>(p.numbers + row * p.depth));
    });
}

namespace {

/// A contraction of words of four bytes, and where the parts of the workspace begin. Rows are filled up with
/// zeros to whole words, those of w where they are none.
struct ByteProduct {
    std::int64_t row_bytes;
    PreparedContraction prepared;
    std::int64_t scales, shifts, values, w, multiply, end;

    ByteProduct(const QuantizedProduct& p, Isa isa, int threads)
        : row_bytes(align_up(p.k, 4)),
          prepared(prepare_contraction(words_of(p, threads), byte_kernels_of(p.m, isa))) {
        scales = in_lines(p.m * row_bytes);
        shifts = scales + float_lines(p.m);
        values = shifts + float_lines(p.m);
        w = values + threads * float_lines(p.k);
        multiply = w + (p.k % 4 == 0 ? 0 : in_lines(p.n * row_bytes));
        end = multiply + static_cast<std::int64_t>(prepared.workspace_bytes(threads));
    }

  private:
    static ContractionProblem words_of(const QuantizedProduct& p, int threads) {
        const std::int64_t words = ceil_div(p.k, 4);
        return {.m = p.m,
                .n = p.n,
                .k = words,
                .a = {.leading = words},
                .b = {.transpose = Transpose::yes, .leading = words},
                .custom_epilogue = true,
                .threads = threads};
    }
};

/// Rows of x, as numbers; the excess of their sums of products.
struct RowsOfX {
    const QuantizedProduct& p;
    std::int8_t* numbers;
    float* scales;
    std::uint32_t* shifts;

    void quantize_row(const ByteProduct& product, std::int64_t row, NarrowToS8 narrow, float* values) const {
        std::int8_t* const to = numbers + row * product.row_bytes;
        std::memset(to + p.k, 0, static_cast<std::size_t>(product.row_bytes - p.k));
        scales[row] = quantize(p.x, row * p.k, p.k, narrow, values, to);
        std::int32_t sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k) sum += to[k];
        shifts[row] = product.prepared.kernels.shift_of_bytes * static_cast<std::uint32_t>(sum);
    }
};

void scale_sums(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                std::int64_t cols, const void* args) {
    const auto& x = *static_cast<const RowsOfX*>(args);
    for (std::int64_t row = row0; row < row0 + rows; ++row, sums += ld) {
        float* const y = x.p.y + row * x.p.n + col0;
        const float* const of_columns = x.p.scales + col0;
        const float* const bias = x.p.bias ? x.p.bias + col0 : nullptr;
        const float of_row = x.scales[row];
        const std::uint32_t shift = x.shifts[row];
        for (std::int64_t j = 0; j < cols; ++j) {
            const auto sum = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(sums[j]) - shift);
            const float scaled = static_cast<float>(sum) * (of_row * of_columns[j]);
            y[j] = bias ? scaled + bias[j] : scaled;
        }
    }
}

/// Rows of w that are no whole words, copied.
const std::byte* in_whole_words(const QuantizedProduct& p, const ByteProduct& product, ThreadPool& pool) {
    if (p.k % 4 == 0) return reinterpret_cast<const std::byte*>(p.w);
    std::byte* const to = p.workspace + product.w;
    pool.for_each_block(p.n, [&](std::int64_t row, int) {
        std::memset(to + row * product.row_bytes, 0, static_cast<std::size_t>(product.row_bytes));
        std::memcpy(to + row * product.row_bytes, p.w + row * p.k, static_cast<std::size_t>(p.k));
    });
    return to;
}

}  // namespace

std::int64_t quantized_product_workspace(const QuantizedProduct& p, Isa isa, int threads) {
    return ByteProduct(p, isa, threads).end;
}

void quantized_product(const QuantizedProduct& p, ThreadPool& pool, Isa isa) {
    constexpr std::int64_t max_depth = INT32_MAX / (128 * 128);
    if (p.k > max_depth)
        throw UserError(fmt::format("s8*s8+s32: sums of more than {} products could leave 32 bits, K is {}",
                                    max_depth, p.k));
    const ByteProduct product(p, isa, pool.threads());
    const auto part = [&](std::int64_t begin) { return reinterpret_cast<float*>(p.workspace + begin); };
    const RowsOfX x{p, reinterpret_cast<std::int8_t*>(p.workspace), part(product.scales),
                    reinterpret_cast<std::uint32_t*>(p.workspace + product.shifts)};
    const auto quantize_row = [&](std::int64_t row, int worker) {
        x.quantize_row(product, row, narrow_to_s8(isa), part(product.values) + worker * float_lines(p.k) / 4);
    };
    // To wake threads takes longer than few rows do.
    if (p.m > max_rows_in_place)
        pool.for_each_block(p.m, quantize_row);
    else
        for (std::int64_t row = 0; row < p.m; ++row) quantize_row(row, 0);
    contract(
        product.prepared,
        {.a = x.numbers, .b = in_whole_words(p, product, pool), .epilogue = scale_sums, .epilogue_args = &x},
        {p.workspace + product.multiply, static_cast<std::size_t>(product.end - product.multiply)}, pool);
}

}  // namespace mantissa::on_cpu
