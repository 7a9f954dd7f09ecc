// The functions of the joint loss over the lanes of the row kernels. A level's source includes its lanes
// first, and defines before this file, for its own lanes:
//     any(mask)              whether a lane is set
//     power_of_two(y)        2^y for y <= 127: 0, or next to nothing, where that is too small; NaN stays
// and, where it rounds two vectors to BF16 at a time, store_two and stream_two for that.
// In an anonymous namespace, so that each level keeps its own copy.
#pragma once

#include "mantissa/device/cpu/loss/kernel_table.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::cpu {
namespace {

constexpr float ln_of_2 = 0x1.62e430p-1f;

/// Below every base that is set: nothing is summed yet.
constexpr float no_base = -1e30f;

/// The largest y is 2^headroom where a base is set, and stays below 2^limit until it is set again. BF16 and
/// FP32 hold any such y and 2^-126 of it; a group's sum stays finite. FP16 ends at 2^16 and 2^-24.
template <class X>
constexpr float limit = 64;
template <>
constexpr float limit<FP16> = 15;
template <class X>
constexpr float headroom = 0;
template <>
constexpr float headroom<FP16> = 8;

MANTISSA_LANES float one_power_of_two(float y) {
    float lane[16];
    Lanes::store(lane, power_of_two(Lanes::constant(y)));
    return lane[0];
}

struct GroupOfRow {
    float* sums;  // [16]
    float* base;
};

/// Thirty-two neighbours.
template <class T>
MANTISSA_LANES void store_two(T* to, Float first, Float second) {
    Lanes::store(to, first);
    Lanes::store(to + 16, second);
}
/// Past the caches; `to` begins a line.
template <class T>
MANTISSA_LANES void stream_two(T* to, Float first, Float second) {
    store(to, first, Whole{}, true);
    store(to + 16, second, Whole{}, true);
}

/// Lets the row's largest logit so far fit: what there is of the group is made smaller, by a power of two.
template <class X>
[[gnu::noinline]] void raise_base(X* y, std::int64_t stored, const GroupOfRow& group, float greatest) {
    const float base = __builtin_ceilf(greatest * log2_of_e) - headroom<X>;
    const Float factor = Lanes::constant(one_power_of_two(*group.base - base));
    *group.base = base;
    Lanes::store(group.sums, Lanes::multiply(Lanes::load(group.sums), factor));
    if (!y) return;
    for_lanes(stored, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        store(y + c, Lanes::multiply(load(y + c, extent), factor), extent, false);
    });
}

MANTISSA_LANES Float greatest_lanes(const float* x, std::int64_t count) {
    Float greatest = Lanes::constant(-__builtin_inff());
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        greatest = Lanes::maximum(keep(load(x + c, extent), extent, -__builtin_inff()), greatest);
    });
    return greatest;
}

template <class X>
MANTISSA_LANES void zeros(X* to, std::int64_t count) {
    for_lanes(count, [&](std::int64_t c, auto extent)
                         MANTISSA_BODY { store(to + c, Lanes::constant(0.0f), extent, false); });
}

/// y of one row's logits, and what they add to the group's sums. y may be null.
template <class X>
MANTISSA_LANES Float exponentials_of_row(const float* x, std::int64_t count, X* y, float base, Float sum) {
    const Float factor = Lanes::constant(log2_of_e), less_base = Lanes::constant(-base);
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float e = power_of_two(Lanes::fma(load(x + c, extent), factor, less_base));
        sum = Lanes::add(sum, keep(e, extent, 0.0f));
        if (y) store(y + c, e, extent, false);
    });
    return sum;
}

/// The same of thirty-two.
template <class X>
MANTISSA_LANES Float exponentials_of_line(const float* x, X* y, float base, Float sum, bool stream) {
    const Float factor = Lanes::constant(log2_of_e), less_base = Lanes::constant(-base);
    const Float first = power_of_two(Lanes::fma(Lanes::load(x), factor, less_base));
    const Float second = power_of_two(Lanes::fma(Lanes::load(x + 16), factor, less_base));
    if (stream)
        stream_two(y, first, second);
    else if (y)
        store_two(y, first, second);
    return Lanes::add(Lanes::add(sum, first), second);
}

/// The part of a block that is no padding, and where its rows lie.
template <class X>
struct BlockPart {
    const Exponentials& p;
    const LogitBlock& b;
    std::int64_t count;  ///< columns
    X* y;                ///< null: not wanted

    std::int64_t at(std::int64_t i) const { return b.group * p.rows + b.row + i; }
    const float* x(std::int64_t i) const { return b.logits + i * b.leading; }
    /// Of the group's first column.
    X* group(std::int64_t i) const { return y ? y + (b.row + i) * p.stride + b.group_begin : nullptr; }
    X* row(std::int64_t i) const { return y ? y + (b.row + i) * p.stride + b.column : nullptr; }
};

/// Takes what is needed of each row before its exponentials are made: a base that fits, the target.
template <class X>
void prepare_rows(const BlockPart<X>& part) {
    const Exponentials& p = part.p;
    const LogitBlock& b = part.b;
    for (std::int64_t i = 0; i < b.rows; ++i) {
        const GroupOfRow group{p.sums + part.at(i) * 16, p.bases + part.at(i)};
        if (b.column == b.group_begin) {
            Lanes::store(group.sums, Lanes::constant(0.0f));
            *group.base = no_base;
        }
        const Float greatest = greatest_lanes(part.x(i), part.count);
        const float fits = (*group.base + limit<X>)*ln_of_2;
        if (any(Lanes::less(Lanes::constant(fits), greatest)))
            raise_base(part.group(i), b.column - b.group_begin, group, Lanes::greatest(greatest));
        const std::int64_t target = p.targets[b.row + i] - b.column;
        if (0 <= target && target < part.count) p.target_logits[b.row + i] = part.x(i)[target];
    }
}

/// Nothing is called in these loops, lest constants be loaded again for each row.
template <class X>
void make_rows(const BlockPart<X>& part, bool stream) {
    const Exponentials& p = part.p;
    for (std::int64_t i = 0; i < part.b.rows; ++i) {
        float* const sums = p.sums + part.at(i) * 16;
        const float base = p.bases[part.at(i)];
        X* const y = part.row(i);
        Lanes::store(sums, part.count == 32
                               ? exponentials_of_line(part.x(i), y, base, Lanes::load(sums), stream)
                               : exponentials_of_row(part.x(i), part.count, y, base, Lanes::load(sums)));
        if (y) zeros(y + part.count, part.b.columns - part.count);
    }
}

template <class X>
void exponentials_of_rows(const Exponentials& p, const LogitBlock& b, X* y) {
    const std::int64_t classes = p.classes - b.column;
    const BlockPart<X> part{p, b, classes < 0 ? 0 : classes < b.columns ? classes : b.columns, y};
    prepare_rows(part);
    make_rows(part, y && p.streaming && b.column % 32 == 0);
}

void exponentials(const Exponentials& p, const LogitBlock& block) {
    with_type(p.y.type, [&](auto* type) { exponentials_of_rows(p, block, as(p.y, type)); });
}

void row_totals(const RowTotals& p, Range rows) {
    for (std::int64_t row = rows.first; row < rows.last; ++row) {
        float base = p.bases[row];
        for (std::int64_t at = row; at < p.groups * p.rows; at += p.rows)
            if (!(p.bases[at] <= base)) base = p.bases[at];  // a NaN comes through
        Float total = Lanes::constant(0.0f);
        for (std::int64_t at = row; at < p.groups * p.rows; at += p.rows)
            total = Lanes::fma(Lanes::load(p.sums + at * 16),
                               power_of_two(Lanes::constant(p.bases[at] - base)), total);
        p.totals[row] = Lanes::sum(total);
        p.base[row] = base;
    }
}

template <class X>
void gradients_of_rows(const LogitGradients& p, const X* y, X* to) {
    for (std::int64_t row = 0; row < p.rows; ++row, y += p.y_leading, to += p.to_leading) {
        const Float factor = Lanes::constant(p.factors[row]);
        const auto gradient = [&](std::int64_t c, auto extent)
                                  MANTISSA_BODY { return Lanes::multiply(load(y + c, extent), factor); };
        std::int64_t c = 0;
        for (; c + 32 <= p.columns; c += 32)
            store_two(to + c, gradient(c, Whole{}), gradient(c + 16, Whole{}));
        for_lanes(p.columns - c, [&](std::int64_t rest, auto extent) MANTISSA_BODY {
            store(to + c + rest, gradient(c + rest, extent), extent, false);
        });
        const std::int64_t target = p.targets[row] - p.column;
        if (0 <= target && target < p.columns)
            Lanes::store_part(to + target, Lanes::constant(p.target_gradients[row]), 1);
    }
}

void logit_gradients(const LogitGradients& p) {
    with_type(p.type, [&](auto* type) {
        gradients_of_rows(p, as(ConstView{p.y, p.type}, type), as(View{p.to, p.type}, type));
    });
}

constexpr LossKernels loss_table = {
    .exponentials = exponentials, .row_totals = row_totals, .logit_gradients = logit_gradients};

}  // namespace
}  // namespace mantissa::cpu
