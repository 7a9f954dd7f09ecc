// The walk over a part of a coded matrix: block by block of each row. In an anonymous namespace, so that each
// source keeps its own copy, compiled for its own level.
#pragma once

#include <cstdint>
#include <cstring>

#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/sixteen_bit.h"

namespace mantissa::inline v0 {

namespace {

template <class To>
To from_bits(std::uint32_t bits) {
    To value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/// As to_bf16.
[[gnu::always_inline]] inline void round_weight(float value, BF16& to) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    to.bits = static_cast<std::uint16_t>(value == value ? rounded : bits >> 16 | 0x40u);
}
[[gnu::always_inline]] inline void round_weight(float value, float& to) { to = value; }

struct CodeBlock {
    float scale;
    std::int64_t end;  ///< in the row, or behind it
};

[[gnu::always_inline]] inline CodeBlock block_at(const CodedSource& from, std::int64_t row,
                                                 std::int64_t column) {
    if (from.layout == Layout::nf4) {
        const std::int64_t at = row * from.columns + column, block = at / nf4_block;
        const float number = from.scale_numbers[static_cast<const std::uint8_t*>(from.scales)[block]];
        return {number * from.ranges[block / nf4_scale_block] + from.mean,
                column + nf4_block - at % nf4_block};
    }
    if (from.layout == Layout::int4) {
        const std::int64_t groups = (from.columns + weights_of_group - 1) / weights_of_group,
                           group = column / weights_of_group;
        const BF16 scale = static_cast<const BF16*>(from.scales)[row * groups + group];
        return {from_bits<float>(std::uint32_t{scale.bits} << 16), (group + 1) * weights_of_group};
    }
    return {static_cast<const float*>(from.scales)[row], from.columns};
}

/// Elements one at a time.
struct WidenOneByOne {
    template <class T>
    static void bytes(const std::uint8_t* codes, float scale, std::int64_t count, T* to) {
        for (std::int64_t i = 0; i < count; ++i)
            round_weight(static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale, to[i]);
    }
    /// `first`: half bytes before the first.
    template <class T>
    static void half_bytes(const CodedSource& from, float scale, std::int64_t first, std::int64_t count,
                           T* to) {
        T table[16];
        for (int code = 0; code < 16; ++code) round_weight(from.numbers[code] * scale, table[code]);
        for (std::int64_t i = 0; i < count; ++i)
            to[i] = table[from.codes[(first + i) / 2] >> ((first + i) % 2 * 4) & 15];
    }
};

template <class Widen, class T>
void widen_rows(const WidenedPart& part) {
    const CodedSource& from = part.from;
    for (std::int64_t row = part.row; row < part.row + part.rows; ++row) {
        T* to = static_cast<T*>(part.to) + (row - part.row) * part.stride;
        for (std::int64_t column = part.column, end = column + part.columns; column < end;) {
            const CodeBlock block = block_at(from, row, column);
            const std::int64_t count = (block.end < end ? block.end : end) - column;
            const std::int64_t first = row * from.columns + column;
            if (from.layout == Layout::int8)
                Widen::bytes(from.codes + first, block.scale, count, to);
            else
                Widen::half_bytes(from, block.scale, first, count, to);
            column += count;
            to += count;
        }
    }
}

template <class Widen>
void widen_part(const WidenedPart& part) {
    part.dtype == DType::bf16 ? widen_rows<Widen, BF16>(part) : widen_rows<Widen, float>(part);
}

}  // namespace

}  // namespace mantissa
