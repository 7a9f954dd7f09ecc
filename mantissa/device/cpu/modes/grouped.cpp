#include "mantissa/device/cpu/modes/grouped.h"

#include <algorithm>
#include <array>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/device/cpu/modes/row_scales.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/integer_formats.h"
#include "mantissa/numerics/weight_groups.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t group = weights_of_group, together = groups_together * group;
/// Up to so many rows the weights are read as they lie: making FP32 of them costs about as much.
constexpr std::int64_t most_rows_as_they_lie = 8;
/// Rows of w that become FP32 at a time: with 1,024 columns 2 MB, as contractions like their operands.
constexpr std::int64_t widened_rows = 512;

std::int64_t groups_of(std::int64_t depth) { return parts_of(depth, group); }

/// Of a group of a row of x: bytes in the order of memory, the last ones zero, and their scale.
struct GroupOfX {
    alignas(32) std::int8_t numbers[group];
    float scale;

    GroupOfX(ConstView x, std::int64_t first, std::int64_t count, const NarrowingKernels& narrow) {
        alignas(64) float values[group] = {};
        widen(x, first, count, values);
        const RowScale of = scale_of(values, group, 127.0f);
        narrow.to_s8(values, of.factor, numbers, group);
        scale = of.scale;
    }
};

/// Rows of x as the kernels of few rows read them.
class FewRows {
  public:
    FewRows(const GroupedProduct& p, std::byte* memory) : p_(p), memory_(memory) {
        for (std::int64_t row = 0; row < p.m; ++row) {
            const Parts at = parts(row);
            rows_[static_cast<std::size_t>(row)] = {at.numbers, at.corrections, at.scales};
        }
    }
    static std::int64_t bytes(const GroupedProduct& p) { return p.m * bytes_of_row(p.k); }

    void quantize(std::int64_t row, const NarrowingKernels& narrow) const {
        const Parts to = parts(row);
        for (std::int64_t at = 0; at < eights() * groups_together; ++at) {
            const std::int64_t count = std::clamp<std::int64_t>(p_.k - at * group, 0, group);
            const GroupOfX of(p_.x, row * p_.k + at * group, count, narrow);
            std::int8_t* const even = to.numbers + at / 2 * 2 * group + at % 2 * group / 2;
            std::int8_t* const odd = even + group;
            std::int32_t sum = 0;
            for (std::int64_t i = 0; i < group / 2; ++i) {
                even[i] = of.numbers[2 * i];
                odd[i] = of.numbers[2 * i + 1];
                sum += even[i] + odd[i];
            }
            const std::int64_t place = at / groups_together * groups_together + place_of_group(at);
            to.corrections[place] = -8 * sum;
            to.scales[place] = of.scale;
        }
    }

    const GroupedRow* data() const { return rows_.data(); }

  private:
    struct Parts {
        std::int8_t* numbers;
        std::int32_t* corrections;
        float* scales;
    };
    Parts parts(std::int64_t row) const {
        std::byte* const at = memory_ + row * bytes_of_row(p_.k);
        return {reinterpret_cast<std::int8_t*>(at), reinterpret_cast<std::int32_t*>(at + eights() * together),
                reinterpret_cast<float*>(at + eights() * (together + 4 * groups_together))};
    }
    std::int64_t eights() const { return parts_of(p_.k, together); }
    static std::int64_t bytes_of_row(std::int64_t k) {
        return parts_of(k, together) * (together + 8 * groups_together);
    }

    const GroupedProduct& p_;
    std::byte* memory_;
    std::array<GroupedRow, most_rows_as_they_lie> rows_ = {};
};

void add_bias(const GroupedProduct& p, std::int64_t row, std::int64_t first, std::int64_t count) {
    if (!p.bias) return;
    float* const y = p.y + row * p.n + first;
    for (std::int64_t j = 0; j < count; ++j) y[j] += p.bias[first + j];
}

void multiply_few_rows(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    const FewRows rows(p, p.workspace);
    for (std::int64_t row = 0; row < p.m; ++row) rows.quantize(row, narrowing_kernels(isa));
    const GroupedRowsKernel kernel = isa == Isa::generic ? grouped_rows_generic : grouped_rows_avx2;
    const std::int64_t bytes = p.k / 2, columns = columns_of_few_rows(p.n, bytes);
    pool.for_each_block(parts_of(p.n, columns), [&](std::int64_t block, int) {
        const std::int64_t first = block * columns, count = std::min(columns, p.n - first);
        kernel({.rows = rows.data(),
                .count = p.m,
                .b = p.w + first * bytes,
                .scales = p.scales + first * groups_of(p.k),
                .bytes = bytes,
                .groups = groups_of(p.k),
                .cols = count,
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

void widen_row_of_x(const GroupedProduct& p, std::int64_t row, const NarrowingKernels& narrow, float* to) {
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
            // Of two's complement in four bits, the top bit turned over is the number plus 8.
            const int two = packed[i] ^ 0x88;
            to[first + 2 * i] = static_cast<float>((two & 15) - 8) * scale;
            to[first + 2 * i + 1] = static_cast<float>((two >> 4) - 8) * scale;
        }
    }
}

void multiply_many_rows(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    const ManyRowsWorkspace at(p, isa, pool.threads());
    const NarrowingKernels& narrow = narrowing_kernels(isa);
    auto* const x = reinterpret_cast<float*>(p.workspace + at.x);
    auto* const w = reinterpret_cast<float*>(p.workspace + at.w);
    pool.for_each_block(p.m, [&](std::int64_t row, int) { widen_row_of_x(p, row, narrow, x + row * p.k); });
    for (std::int64_t first = 0; first < p.n; first += widened_rows) {
        const std::int64_t columns = std::min(widened_rows, p.n - first);
        pool.for_each_block(parts_of(columns, 16), [&](std::int64_t block, int) {
            for (std::int64_t j = block * 16; j < std::min(columns, block * 16 + 16); ++j)
                widen_row_of_w(p, first + j, w + j * p.k);
        });
        contract(prepare_contraction(part_in_f32(p, columns), isa),
                 {.a = x, .b = w, .out = p.y + first, .bias = p.bias ? p.bias + first : nullptr},
                 {p.workspace + at.multiply, static_cast<std::size_t>(at.end - at.multiply)}, pool);
    }
}

}  // namespace

const char* name_of_grouped_rows(Isa isa) { return isa == Isa::generic ? "generic" : "avx2"; }

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
    if (p.m <= most_rows_as_they_lie) return FewRows::bytes(p);
    return ManyRowsWorkspace(p, isa, threads).end;
}

void grouped_product(const GroupedProduct& p, ThreadPool& pool, Isa isa) {
    check(p.k % 2 == 0, "rows of four bits are even");
    if (p.m <= most_rows_as_they_lie)
        multiply_few_rows(p, pool, isa);
    else
        multiply_many_rows(p, pool, isa);
}

}  // namespace mantissa::on_cpu
