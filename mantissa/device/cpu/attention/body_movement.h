// How attention brings rows of a tensor into lanes and back, and FP32 rows out of 16-bit ones. See
// body_products.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/attention/body_products.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LONG_LANES Float exp_of(Float x) { return elementary::exp(lanes, x); }

MANTISSA_LANES void fill(float* to, std::int64_t count, float value) {
    for_lanes(count, [&](std::int64_t i, auto extent)
                         MANTISSA_BODY { store(to + i, Lanes::constant(value), extent, false); });
}

/// Rows of one head as a tensor has them.
template <class T>
struct HeadRows {
    T* data = nullptr;
    std::int64_t stride = 0;

    T* row(std::int64_t i) const { return data + i * stride; }
    HeadRows from(std::int64_t i) const { return {row(i), stride}; }
};

/// Elements to the first row of a head, counted through all sequences of so many heads each.
MANTISSA_LANES std::int64_t head_offset(std::int64_t heads, const HeadStrides& at, std::int64_t head) {
    return head / heads * at.sequence + head % heads * at.head;
}
/// Rows of a head of the queries, or of a tensor of their shape.
template <class T>
MANTISSA_LANES HeadRows<const T> head_of(const AttentionSize& s, const ConstHeads& x, std::int64_t head,
                                         const T*) {
    return {static_cast<const T*>(x.data) + head_offset(s.heads, x.strides, head), x.strides.position};
}
template <class T>
MANTISSA_LANES HeadRows<T> head_of(const AttentionSize& s, const Heads& x, std::int64_t head, const T*) {
    return {static_cast<T*>(x.data) + head_offset(s.heads, x.strides, head), x.strides.position};
}
/// Rows of a head of keys and values, by one of their own B G heads.
template <class T>
MANTISSA_LANES HeadRows<const T> key_head_of(const AttentionSize& s, const ConstHeads& x, std::int64_t head,
                                             const T*) {
    return {static_cast<const T*>(x.data) + head_offset(s.heads / s.group, x.strides, head),
            x.strides.position};
}
template <class T>
MANTISSA_LANES HeadRows<T> key_head_of(const AttentionSize& s, const Heads& x, std::int64_t head, const T*) {
    return {static_cast<T*>(x.data) + head_offset(s.heads / s.group, x.strides, head), x.strides.position};
}

/// The rows in FP32: where they are, or widened into `scratch`.
MANTISSA_LANES Rows widened(const HeadRows<const float>& x, std::int64_t count, std::int64_t, float*) {
    return {x.data, x.stride, count};
}
template <class T>
Rows widened(const HeadRows<const T>& x, std::int64_t count, std::int64_t width, float* scratch) {
    for (std::int64_t r = 0; r < count; ++r) {
        const T* const from = x.row(r);
        float* const to = scratch + r * width;
        for_lanes(width, [&](std::int64_t d, auto extent)
                             MANTISSA_BODY { store(to + d, load(from + d, extent), extent, false); });
    }
    return {scratch, width, count};
}

using Square = std::uint32_t[16 * 16];

MANTISSA_LANES float* as_floats(std::uint32_t* square) { return reinterpret_cast<float*>(square); }

/// lanes[d][i] = take(x[i] + d, number of existing elements), 0 for missing rows.
template <class T, class Take>
MANTISSA_LANES void transpose_into(const HeadRows<const T>& x, std::int64_t count, std::int64_t width,
                                   const Block& block, Take take) {
    alignas(64) Square rows, columns;
    for (std::int64_t d = 0; d < width; d += 16)
        for (std::int64_t i = 0; i < block.lanes; i += 16) {
            const int present = static_cast<int>(width - d < 16 ? width - d : 16);
            for (int r = 0; r < 16; ++r)
                Lanes::store(as_floats(rows) + 16 * r,
                             i + r < count ? take(x.row(i + r) + d, present) : Lanes::constant(0.0f));
            Lanes::transpose16(rows, 16, columns, 16);
            for (int c = 0; c < present; ++c)
                Lanes::store(block.row(d + c) + i, Lanes::load(as_floats(columns) + 16 * c));
        }
}

/// lanes[d][i] = factor x[i][d].
template <class T>
void into_lanes(const HeadRows<const T>& x, std::int64_t count, std::int64_t width, float factor,
                const Block& block) {
    const Float factors = Lanes::constant(factor);
    transpose_into(x, count, width, block, [&](const T* from, int present) MANTISSA_BODY {
        return Lanes::multiply(Lanes::load_part(from, present), factors);
    });
}

/// x[i][d] = lanes[d][i] factors[i] for the existing rows.
template <class T>
void out_of_lanes(const Block& block, const float* factors, std::int64_t count, std::int64_t width,
                  const HeadRows<T>& x) {
    alignas(64) Square rows, columns;
    for (std::int64_t d = 0; d < width; d += 16)
        for (std::int64_t i = 0; i < count; i += 16) {
            const int present = static_cast<int>(width - d < 16 ? width - d : 16);
            for (int c = 0; c < 16; ++c) {
                const Float column = c < present ? Lanes::load(block.row(d + c) + i) : Lanes::constant(0.0f);
                Lanes::store(as_floats(columns) + 16 * c, Lanes::multiply(column, Lanes::load(factors + i)));
            }
            Lanes::transpose16(columns, 16, rows, 16);
            for (int r = 0; r < 16 && i + r < count; ++r) {
                const Float row = Lanes::load(as_floats(rows) + 16 * r);
                if (present == 16)
                    Lanes::store(x.row(i + r) + d, row);
                else
                    Lanes::store_part(x.row(i + r) + d, row, present);
            }
        }
}

/// FP32 rows padded with zeros to whole vectors, times a factor.
template <class T>
void padded_rows(const HeadRows<const T>& x, std::int64_t count, std::int64_t width, float factor,
                 const Block& to) {
    const Float factors = Lanes::constant(factor);
    for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t d = 0; d < width; d += 16) {
            const int present = static_cast<int>(width - d < 16 ? width - d : 16);
            Lanes::store(to.row(r) + d, Lanes::multiply(Lanes::load_part(x.row(r) + d, present), factors));
        }
}

/// 0, 1, ..., 15 from `first` on.
MANTISSA_LANES Float counted_from(float first) {
    static constexpr float counts[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return Lanes::add(Lanes::load(counts), Lanes::constant(first));
}

}  // namespace
}  // namespace mantissa::on_cpu
