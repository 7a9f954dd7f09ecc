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

/// y of one row's `count` logits; adds them to the group's sums. y may be null.
template <class X>
MANTISSA_LANES void exponentials_of_row(const float* x, std::int64_t count, X* y, const GroupOfRow& group,
                                        bool stream) {
    const Float factor = Lanes::constant(log2_of_e), base = Lanes::constant(-*group.base);
    const auto exponential = [&](std::int64_t c, auto extent) MANTISSA_BODY {
        return power_of_two(Lanes::fma(load(x + c, extent), factor, base));
    };
    Float sum = Lanes::load(group.sums);
    std::int64_t c = 0;
    for (; c + 32 <= count; c += 32) {
        const Float first = exponential(c, Whole{}), second = exponential(c + 16, Whole{});
        sum = Lanes::add(sum, Lanes::add(first, second));
        if (y && stream)
            stream_two(y + c, first, second);
        else if (y)
            store_two(y + c, first, second);
    }
    for_lanes(count - c, [&](std::int64_t rest, auto extent) MANTISSA_BODY {
        const Float e = exponential(c + rest, extent);
        sum = Lanes::add(sum, keep(e, extent, 0.0f));
        if (y) store(y + c + rest, e, extent, false);
    });
    Lanes::store(group.sums, sum);
}

template <class X>
void exponentials_of_rows(const Exponentials& p, const LogitBlock& b, X* y) {
    const std::int64_t classes = p.classes - b.column;
    const std::int64_t count = classes < 0 ? 0 : classes < b.columns ? classes : b.columns;
    const bool stream = p.streaming && b.columns % 32 == 0 && b.column % 32 == 0;
    for (std::int64_t i = 0; i < b.rows; ++i) {
        const float* const x = b.logits + i * b.leading;
        const std::int64_t row = b.row + i, at = b.group * p.rows + row;
        const GroupOfRow group{p.sums + at * 16, p.bases + at};
        X* const begin = y ? y + row * p.stride : nullptr;
        if (b.column == b.group_begin) {
            Lanes::store(group.sums, Lanes::constant(0.0f));
            *group.base = no_base;
        }
        const Float greatest = greatest_lanes(x, count);
        const float fits = (*group.base + limit<X>)*ln_of_2;
        if (__builtin_expect(any(Lanes::less(Lanes::constant(fits), greatest)), 0))
            raise_base(begin ? begin + b.group_begin : begin, b.column - b.group_begin, group,
                       Lanes::greatest(greatest));
        exponentials_of_row(x, count, begin ? begin + b.column : begin, group, stream);
        if (begin) zeros(begin + b.column + count, b.columns - count);
        const std::int64_t target = p.targets[row] - b.column;
        if (0 <= target && target < count) p.target_logits[row] = x[target];
    }
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
