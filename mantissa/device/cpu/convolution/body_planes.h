// Planes of the source of a convolution in groups, and kernels' loads of them. See rows/body_loops.h for how
// this file is used.
//
// Rows of the source become planes in FP32 once, in a ring of as many as a row of the output meets: small
// enough for L1 where images are as wide as networks have them. Depthwise convolutions have none: see
// body_depthwise.h.
#pragma once

#include "mantissa/device/cpu/convolution/grouped_problems.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// A pointer that addresses are counted from; otherwise the compiler would keep a register for each of them.
MANTISSA_LANES const float* base_at(const float* from) {
    asm("" : "+r"(from));
    return from;
}

template <class T>
struct Several {
    const T* first;
    std::int64_t count;
    const T* begin() const { return first; }
    const T* end() const { return first + count; }
};

/// Pixels that are fetched while others are computed, some at a time: many at once would wait for one
/// another, and everything else for them.
struct Ahead {
    const char* from = nullptr;
    std::int64_t pitch = 0, left = 0;

    /// Fetches a block of `count` pixels from that element on. In 16 bits two blocks are a line.
    static Ahead of(ConstView view, std::int64_t element, std::int64_t channels, std::int64_t count) {
        const bool is_short = view.type != DType::f32;
        const std::int64_t bytes = is_short ? 2 : 4, at = element * bytes;
        return {static_cast<const char*>(view.data) + at, channels * bytes,
                is_short && at % 64 > 0 ? 0 : count};
    }
    void take(std::int64_t count) {
        for (count = least(count, left), left -= count; count > 0; --count, from += pitch) fetch(from);
    }
};

/// Pixels of a source and of the output that come next.
struct Next {
    Ahead source = {}, other = {};
    std::int64_t source_pixels = 1;  ///< of the source for one pixel of the output

    MANTISSA_LANES void take(Next& next, std::int64_t pixels) {
        next.source.take(pixels * next.source_pixels);
        next.other.take(pixels);
    }
};

/// Rows of the source from `row` on, of a block's channels.
Ahead rows_ahead(const SourcePlanes& s, std::int64_t image, std::int64_t row, std::int64_t rows,
                 std::int64_t block) {
    const std::int64_t first = block * block_lanes / s.group_outputs * s.group_channels;
    return Ahead::of(s.data, (image * s.rows + row) * s.columns * s.channels + first, s.channels,
                     least(rows, s.rows - row) * s.columns);
}

/// The channels of the source that a block reads.
struct BlockSource {
    std::int64_t first = 0, span = 0;
    std::int32_t index[16] = {};  ///< of each lane in plane 0, behind `first`

    BlockSource(const SourcePlanes& s, std::int64_t block, std::int64_t outputs) {
        const std::int64_t o = block * block_lanes, lanes_here = least(block_lanes, outputs - o);
        first = o / s.group_outputs * s.group_channels;
        for (std::int64_t l = 0; l < lanes_here; ++l) {
            index[l] = static_cast<std::int32_t>((o + l) / s.group_outputs * s.group_channels - first);
            span = index[l] + s.group_channels;
        }
    }
};

/// Widens blocks of channels of pixels `pitch` apart to rows in FP32, `apart` from one block to the next.
/// Elements `ahead` are fetched, if that is not 0.
template <class X>
void widen_row(const X* x, std::int64_t pixels, std::int64_t pitch, std::int64_t channels, std::int64_t apart,
               std::int64_t ahead, float* to) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += pitch, to += block_lanes) {
        float* block_to = to;
        for_lanes(channels, [&](std::int64_t c, auto extent) MANTISSA_BODY {
            if (ahead) fetch(x + c + ahead);
            Lanes::store(block_to, load(x + c, extent));
            block_to += apart;
        });
    }
}

/// Widens blocks of `each` channels, fewer than lanes: no kernel reads the lanes beyond them. Half a vector,
/// as pairs have it, is copied: a load of a part took twice as long from beyond L1.
template <class X>
void widen_narrow_row(const X* x, std::int64_t pixels, std::int64_t pitch, std::int64_t channels, int each,
                      std::int64_t apart, std::int64_t ahead, float* to) {
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel, x += pitch, to += block_lanes) {
        float* block_to = to;
        for (std::int64_t c = 0; c < channels; c += each, block_to += apart) {
            if (ahead) fetch(x + c + ahead);
            if (sizeof(X) == sizeof(float) && each == 8)
                __builtin_memcpy(block_to, x + c, 8 * sizeof(float));
            else
                Lanes::store(block_to, load(x + c, Part{each}));
        }
    }
}

/// Pairs pixels of a plane's row with the pixels behind them; pixels before its first, too.
template <class V>
void pair_pixels(const SourcePlanes& s, float* row) {
    std::int64_t q = -least(s.margin, s.pixels_apart);
    __builtin_memset(row + q * block_lanes, 0, static_cast<std::size_t>(-q * block_lanes) * sizeof(float));
    for (; q < s.columns; ++q) {
        float* const to = row + q * block_lanes;
        V::store(to, V::pair(V::load(to), V::load(to + s.pixels_apart * block_lanes)));
    }
}

/// Planes of a row whose groups read within one vector each.
template <class X>
void permute_row(const SourcePlanes& s, const BlockSource& of, const X* x, float* to) {
    for (std::int64_t plane = 0; plane < s.group_channels; ++plane, to += s.row_floats()) {
        std::int32_t index[16];
        for (int l = 0; l < 16; ++l) index[l] = of.index[l] + static_cast<std::int32_t>(plane);
        for (std::int64_t pixel = 0; pixel < s.columns; ++pixel) {
            const X* from = x + pixel * s.channels;
            const Float lanes_here =
                of.span == 16 ? Lanes::load(from) : Lanes::load_part(from, static_cast<int>(of.span));
            Lanes::store(to + pixel * block_lanes, Lanes::permuted(lanes_here, index));
        }
    }
}

/// Planes of a row of any groups.
template <class X>
void gather_row(const SourcePlanes& s, const BlockSource& of, const X* x, float* to) {
    float wide[max_span];
    for (std::int64_t pixel = 0; pixel < s.columns; ++pixel, x += s.channels, to += block_lanes) {
        for_lanes(of.span, [&](std::int64_t c, auto extent)
                               MANTISSA_BODY { store(wide + c, load(x + c, extent), extent, false); });
        for (std::int64_t plane = 0; plane < s.group_channels; ++plane)
            for (int l = 0; l < 16; ++l) to[plane * s.row_floats() + l] = wide[of.index[l] + plane];
    }
}

/// The ring of rows of some blocks' planes.
class Planes {
  public:
    Planes(const SourcePlanes& s, std::int64_t image, Range blocks, std::int64_t outputs, float* ring)
        : s_(s), image_(image), blocks_(blocks), outputs_(outputs), ring_(ring) {}

    /// Column 0 of the image.
    float* row(std::int64_t row, std::int64_t block, std::int64_t plane) const {
        const std::int64_t at = row % s_.slots * s_.blocks + block - blocks_.first;
        return ring_ + (at * s_.planes() + plane) * s_.row_floats() + s_.margin * block_lanes;
    }

    /// Offset of a plane's first lane from the row of plane 0.
    std::int64_t offset(std::int64_t plane) const {
        return s_.lanes_from == LaneSource::planes      ? plane * s_.row_floats()
               : s_.lanes_from == LaneSource::broadcast ? plane
                                                        : 0;
    }

    void fill(std::int64_t row_of_image) const {
        with_type(s_.data.type, [&](auto* type) {
            const auto* x = as(s_.data, type) + (image_ * s_.rows + row_of_image) * s_.columns * s_.channels;
            if (s_.lanes_from != LaneSource::planes) {
                const std::int64_t each = s_.block_channels(), first = blocks_.first * each;
                const std::int64_t count = least(blocks_.last * each, s_.channels) - first;
                const std::int64_t ahead = s_.rows_ahead * s_.columns * s_.channels;
                float* const to = row(row_of_image, blocks_.first, 0);
                if (each == block_lanes)
                    widen_row(x + first, s_.columns, s_.channels, count, s_.row_floats(), ahead, to);
                else
                    widen_narrow_row(x + first, s_.columns, s_.channels, count, static_cast<int>(each),
                                     s_.row_floats(), ahead, to);
                return;
            }
            for (std::int64_t block = blocks_.first; block < blocks_.last; ++block) {
                const BlockSource of(s_, block, outputs_);
                if (of.span <= 16)
                    permute_row(s_, of, x + of.first, row(row_of_image, block, 0));
                else
                    gather_row(s_, of, x + of.first, row(row_of_image, block, 0));
            }
        });
        if constexpr (Vector::pairs)
            if (s_.pixels_apart > 0)
                for (std::int64_t block = blocks_.first; block < blocks_.last; ++block)
                    for (std::int64_t plane = 0; plane < s_.planes(); ++plane)
                        pair_pixels<Vector>(s_, row(row_of_image, block, plane));
    }

  private:
    const SourcePlanes& s_;
    std::int64_t image_;
    Range blocks_;
    std::int64_t outputs_;
    float* ring_;
};

/// The channel of a block in each lane of a plane.
struct Permutations {
    std::int32_t index[16][16] = {};

    explicit Permutations(const SourcePlanes& s) {
        for (std::int64_t plane = 0; plane < least(s.group_channels, 16); ++plane)
            for (std::int64_t l = 0; l < 16; ++l)
                index[plane][l] = static_cast<std::int32_t>(l / s.group_outputs * s.group_channels + plane);
    }
    const std::int32_t* of(std::int64_t plane) const { return index[plane % 16]; }
};

/// c and the product of each lane, or the products of its pairs.
template <bool Pairs, class V = Vector>
MANTISSA_LANES typename V::Float add_product(typename V::Float a, typename V::Float b, typename V::Float c) {
    if constexpr (Pairs)
        return V::add_pairs(a, b, c);
    else
        return V::multiply_add(a, b, c);
}

template <LaneSource From, class V = Vector>
MANTISSA_LANES typename V::Float load_source(const float* from, const std::int32_t* index) {
    if constexpr (From == LaneSource::permuted)
        return V::load_permuted(from, index);
    else if constexpr (From == LaneSource::broadcast)
        return V::load_broadcast(from);
    else
        return V::load_once(from);
}

/// Rows of FP32 become pairs, every two of them a row that is `apart` from the next.
template <class V>
void store_pairs(std::int64_t count, const float* rows, float* to, std::int64_t apart) {
    if constexpr (V::pairs)
        for (std::int64_t i = 0; i < count; ++i, rows += 2 * block_lanes, to += apart)
            V::store(to, V::pair(V::load(rows), V::load(rows + block_lanes)));
}

}  // namespace
}  // namespace mantissa::on_cpu
