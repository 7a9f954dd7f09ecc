// A few rows times a matrix over the lanes of the row kernels. Bound by memory, so products are rounded
// before they are added, which gives the same bits on every level.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first: the headers after them are written in terms of lanes.
#include "mantissa/device/cpu/contraction/rows_along_body.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One column after the other, and no prefetch: so memory is read as one stream, which hardware fetches ahead
/// by itself, into L2. Two columns at a time, or a prefetch into L1, end at that cache's misses in flight: 11
/// GB/s a core where one stream reaches 26 (Zen 4).
template <class Element>
void one_row_along(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    const auto* const row = static_cast<const float*>(p.rows);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        FourSums total = FourSums::zero();
        for_lanes_in_four(p.depth, [&](std::int64_t k, int slot, auto extent) MANTISSA_BODY {
            total.add(slot, Lanes::multiply(load(row + k, extent), load(b + j * p.stride + k, extent)));
        });
        p.sums[j] = total.total();
    }
}

template <class Element>
struct WidenedDots {
    using Row = float;
    using Column = Element;
    using Numbers = Float;
    using Weights = Float;
    using Sums = Float;
    /// The most rows at a time whose sums with three columns are in registers.
    static constexpr int rows = Lanes::registers == 32 ? 8 : 2, columns = 3, together = 16;

    template <class T>
    MANTISSA_LANES Float load(const T* from) {
        return Lanes::load(from);
    }
    template <class T>
    MANTISSA_LANES Float load_first(const T* from, std::int64_t count) {
        return Lanes::load_part(from, static_cast<int>(count));
    }
    MANTISSA_LANES Float weights_of(Float numbers) { return numbers; }
    MANTISSA_LANES Float zero() { return Lanes::constant(0.0f); }
    MANTISSA_LANES Float add(Float sums, Float x, Float weights) {
        return Lanes::add(sums, Lanes::multiply(x, weights));
    }
    template <int Rows>
    MANTISSA_LANES void store(const Float (&sums)[Rows], float* to, std::int64_t stride) {
        for (int r = 0; r < Rows; ++r) to[r * stride] = Lanes::sum(sums[r]);
    }
};

template <class Element>
void row_product_along(const RowProduct& p) {
    p.count == 1 ? one_row_along<Element>(p) : multiply_rows_along<WidenedDots<Element>>(p);
}

/// Adds `Depth` stored rows of b, from row k on, to the sums, which stay in L1.
template <int Depth, class Element>
void add_rows(const RowProduct& p, const Element* b, std::int64_t k) {
    for_lanes(p.cols, [&](std::int64_t j, auto extent) MANTISSA_BODY {
        Float stored[Depth];
        for (int i = 0; i < Depth; ++i) {
            // The rows of the next step: hardware foresees no stream of short rows.
            __builtin_prefetch(b + (k + i + Depth) * p.stride + j);
            stored[i] = load(b + (k + i) * p.stride + j, extent);
        }
        for (std::int64_t r = 0; r < p.count; ++r) {
            const float* const row = static_cast<const float*>(p.rows) + r * p.row_stride + k;
            float* const at = p.sums + r * p.sums_stride + j;
            Float sum = load(at, extent);
            for (int i = 0; i < Depth; ++i)
                sum = Lanes::add(sum, Lanes::multiply(Lanes::constant(row[i]), stored[i]));
            store(at, sum, extent, false);
        }
    });
}

template <class Element>
void row_product_across(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    for (std::int64_t r = 0; r < p.count; ++r)
        for_lanes(p.cols, [&](std::int64_t j, auto extent) MANTISSA_BODY {
            store(p.sums + r * p.sums_stride + j, Lanes::constant(0.0f), extent, false);
        });
    std::int64_t k = 0;
    for (; k + 4 <= p.depth; k += 4) add_rows<4>(p, b, k);
    for (; k < p.depth; ++k) add_rows<1>(p, b, k);
}

}  // namespace

RowProductKernels MANTISSA_OF_LEVEL(row_product)() {
    return {{{row_product_along<float>, row_product_along<BF16>},
             {row_product_across<float>, row_product_across<BF16>}}};
}

}  // namespace mantissa::on_cpu
