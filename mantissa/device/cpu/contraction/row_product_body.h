// A row times a matrix over the lanes of the row kernels, which each source of a level includes first. In an
// anonymous namespace, so that each keeps its own copy. Bound by memory, so products are rounded before they
// are added, which gives the same bits on every level.
#pragma once

#include "mantissa/device/cpu/contraction/row_product.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// One column after the other, and no prefetch: so memory is read as one stream, which hardware fetches ahead
/// by itself, into L2. Two columns at a time, or a prefetch into L1, end at that cache's misses in flight: 11
/// GB/s a core where one stream reaches 26 (Zen 4).
template <class Element>
void row_product_along(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    for (std::int64_t j = 0; j < p.cols; ++j) {
        FourSums total = FourSums::zero();
        for_lanes_in_four(p.depth, [&](std::int64_t k, int slot, auto extent) MANTISSA_BODY {
            total.add(slot, Lanes::multiply(load(p.row + k, extent), load(b + j * p.stride + k, extent)));
        });
        p.sums[j] = total.total();
    }
}

/// Adds `Depth` stored rows of b to the sums, which stay in L1.
template <int Depth, class Element>
void add_rows(const RowProduct& p, const Element* b, const float* row) {
    for_lanes(p.cols, [&](std::int64_t j, auto extent) MANTISSA_BODY {
        Float sum = load(p.sums + j, extent);
        for (int k = 0; k < Depth; ++k) {
            // The rows of the next step: hardware foresees no stream of short rows.
            __builtin_prefetch(b + (k + Depth) * p.stride + j);
            const Float term = Lanes::multiply(Lanes::constant(row[k]), load(b + k * p.stride + j, extent));
            sum = Lanes::add(sum, term);
        }
        store(p.sums + j, sum, extent, false);
    });
}

template <class Element>
void row_product_across(const RowProduct& p) {
    const auto* const b = static_cast<const Element*>(p.b);
    for_lanes(p.cols, [&](std::int64_t j, auto extent)
                          MANTISSA_BODY { store(p.sums + j, Lanes::constant(0.0f), extent, false); });
    std::int64_t k = 0;
    for (; k + 4 <= p.depth; k += 4) add_rows<4>(p, b + k * p.stride, p.row + k);
    for (; k < p.depth; ++k) add_rows<1>(p, b + k * p.stride, p.row + k);
}

inline RowProductKernels row_product_kernels() {
    return {{{row_product_along<float>, row_product_along<BF16>},
             {row_product_across<float>, row_product_across<BF16>}}};
}

}  // namespace

}  // namespace mantissa::on_cpu
