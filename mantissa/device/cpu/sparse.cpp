#include "mantissa/device/cpu/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/integer_formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

int bits_of(SparseFormat format) {
    switch (format) {
        case SparseFormat::f32:
            return 32;
        case SparseFormat::f16:
        case SparseFormat::bf16:
            return 16;
        case SparseFormat::s8:
            return 8;
        case SparseFormat::s4:
            return 4;
    }
    throw InternalError("a sparse format outside of its enumeration");
}

/// The bits of number `index` of a row.
std::uint32_t bits_at(SparseFormat format, const void* row, std::int64_t index) {
    if (format == SparseFormat::s4)
        return static_cast<std::uint32_t>(s4_at(static_cast<const std::uint8_t*>(row), index)) & 0xfu;
    const auto bytes = static_cast<std::size_t>(bits_of(format) / 8);
    std::uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const std::byte*>(row) + static_cast<std::size_t>(index) * bytes, bytes);
    return bits;
}

void set_bits(SparseFormat format, void* row, std::int64_t index, std::uint32_t bits) {
    if (format == SparseFormat::s4)
        return set_s4(static_cast<std::uint8_t*>(row), index, static_cast<std::int8_t>(bits));
    const auto bytes = static_cast<std::size_t>(bits_of(format) / 8);
    std::memcpy(static_cast<std::byte*>(row) + static_cast<std::size_t>(index) * bytes, &bits, bytes);
}

/// Infinite for a NaN.
double magnitude(SparseFormat format, std::uint32_t bits) {
    double value = 0;
    switch (format) {
        case SparseFormat::f32:
            value = static_cast<double>(std::bit_cast<float>(bits));
            break;
        case SparseFormat::f16:
            value = static_cast<double>(to_f32(FP16{static_cast<std::uint16_t>(bits)}));
            break;
        case SparseFormat::bf16:
            value = static_cast<double>(to_f32(BF16{static_cast<std::uint16_t>(bits)}));
            break;
        case SparseFormat::s8:
            value = static_cast<std::int8_t>(bits);
            break;
        case SparseFormat::s4:
            value = static_cast<int>(bits ^ 8u) - 8;
            break;
    }
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : std::fabs(value);
}

std::array<double, 4> magnitudes(SparseFormat format, const void* row, std::int64_t first) {
    std::array<double, 4> of{};
    for (int i = 0; i < 4; ++i)
        of[static_cast<std::size_t>(i)] = magnitude(format, bits_at(format, row, first + i));
    return of;
}

/// Positions of the two greatest, in order; the earlier of equals.
std::array<int, 2> two_greatest(const std::array<double, 4>& of) {
    std::size_t first = 0, second = 4;
    for (std::size_t i = 1; i < 4; ++i)
        if (of[i] > of[first]) first = i;
    for (std::size_t i = 0; i < 4; ++i)
        if (i != first && (second == 4 || of[i] > of[second])) second = i;
    return {static_cast<int>(std::min(first, second)), static_cast<int>(std::max(first, second))};
}

/// Bytes of a row.
struct RowSizes {
    std::size_t dense, values, positions;
};

RowSizes row_sizes(SparseFormat format, std::int64_t k) {
    if (k < 0 || k % 4 != 0)
        throw UserError(
            fmt::format("2:4 sparse rows consist of groups of four: K must be a multiple of 4, "
                        "got {}",
                        k));
    const auto dense = static_cast<std::size_t>(k * bits_of(format) / 8);
    return {dense, static_cast<std::size_t>((k / 2 * bits_of(format) + 7) / 8),
            static_cast<std::size_t>((k / 4 + 1) / 2)};
}

/// The positions of a group's two values.
int pair_at(const std::uint8_t* positions, std::int64_t group) {
    return positions[group / 2] >> (group % 2 * 4) & 0xf;
}

void compress_row(SparseFormat format, const void* from, std::int64_t row, std::int64_t k, void* values,
                  std::uint8_t* positions) {
    for (std::int64_t group = 0; group < k / 4; ++group) {
        const std::array<double, 4> of = magnitudes(format, from, 4 * group);
        int kept = 0;
        for (const double magnitude : of) kept += magnitude != 0;
        if (kept > 2)
            throw UserError(
                fmt::format("not 2:4 sparse: row {}, columns {} to {} hold {} numbers that are not "
                            "zero, at most 2 may be; prune it first",
                            row, 4 * group, 4 * group + 3, kept));
        const std::array<int, 2> at = two_greatest(of);
        set_bits(format, values, 2 * group, bits_at(format, from, 4 * group + at[0]));
        set_bits(format, values, 2 * group + 1, bits_at(format, from, 4 * group + at[1]));
        const int pair = at[0] | at[1] << 2;
        std::uint8_t& byte = positions[group / 2];
        byte = static_cast<std::uint8_t>(group % 2 == 0 ? pair : byte | pair << 4);
    }
}

/// Two of every four numbers are values, the others zero.
template <class Number>
void fill_up(const void* values, const std::uint8_t* positions, std::int64_t k, void* row) {
    const auto* from = static_cast<const Number*>(values);
    auto* four = static_cast<Number*>(row);
    for (std::int64_t group = 0; group < k / 4; ++group, from += 2, four += 4) {
        const int pair = pair_at(positions, group);
        std::fill_n(four, 4, Number{});
        four[pair & 3] = from[0];
        four[pair >> 2] = from[1];
    }
}

/// Four half bytes at a time.
void fill_up_s4(const void* values, const std::uint8_t* positions, std::int64_t k, void* row) {
    const auto* const from = static_cast<const std::uint8_t*>(values);
    auto* const to = static_cast<std::uint8_t*>(row);
    for (std::int64_t group = 0; group < k / 4; ++group) {
        const int pair = pair_at(positions, group);
        const int four = (from[group] & 0xf) << 4 * (pair & 3) | from[group] >> 4 << 4 * (pair >> 2);
        to[2 * group] = static_cast<std::uint8_t>(four);
        to[2 * group + 1] = static_cast<std::uint8_t>(four >> 8);
    }
}

}  // namespace

SparseFormat sparse_format_of(DType type) {
    switch (type) {
        case DType::f32:
            return SparseFormat::f32;
        case DType::f16:
            return SparseFormat::f16;
        case DType::bf16:
            return SparseFormat::bf16;
        default:
            throw InternalError(fmt::format("{} has no 2:4 sparse form", name_of(type)));
    }
}

SparseSizes sparse_sizes(SparseFormat format, std::int64_t rows, std::int64_t k) {
    const RowSizes of = row_sizes(format, k);
    const auto count = static_cast<std::size_t>(rows);
    return {count * of.dense, count * of.values, count * of.positions};
}

void prune(SparseFormat format, void* matrix, std::int64_t rows, std::int64_t k) {
    const RowSizes sizes = row_sizes(format, k);
    for (std::int64_t row = 0; row < rows; ++row) {
        auto* const numbers = static_cast<std::byte*>(matrix) + static_cast<std::size_t>(row) * sizes.dense;
        for (std::int64_t group = 0; group < k / 4; ++group) {
            const std::array<int, 2> kept = two_greatest(magnitudes(format, numbers, 4 * group));
            for (int i = 0; i < 4; ++i)
                if (i != kept[0] && i != kept[1]) set_bits(format, numbers, 4 * group + i, 0);
        }
    }
}

void compress(SparseFormat format, const void* matrix, std::int64_t rows, std::int64_t k, void* values,
              std::uint8_t* positions) {
    const RowSizes sizes = row_sizes(format, k);
    for (std::int64_t row = 0; row < rows; ++row) {
        const auto place = static_cast<std::size_t>(row);
        compress_row(format, static_cast<const std::byte*>(matrix) + place * sizes.dense, row, k,
                     static_cast<std::byte*>(values) + place * sizes.values,
                     positions + place * sizes.positions);
    }
}

void decompress_row(SparseFormat format, const void* values, const std::uint8_t* positions, std::int64_t k,
                    void* row) {
    switch (format) {
        case SparseFormat::f32:
            return fill_up<std::uint32_t>(values, positions, k, row);
        case SparseFormat::f16:
        case SparseFormat::bf16:
            return fill_up<std::uint16_t>(values, positions, k, row);
        case SparseFormat::s8:
            return fill_up<std::uint8_t>(values, positions, k, row);
        case SparseFormat::s4:
            return fill_up_s4(values, positions, k, row);
    }
    throw InternalError("a sparse format outside of its enumeration");
}

}  // namespace mantissa::on_cpu
