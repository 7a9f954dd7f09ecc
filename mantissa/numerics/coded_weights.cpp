#include "mantissa/numerics/coded_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/numerics/widen_codes_body.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::array<std::string_view, 7> layout_names = {"row_major", "half_bytes", "nf4", "int4",
                                                          "int8",      "e4m3",       "e5m2"};
constexpr float largest_byte = 127;

/// Numbers of two's complement in four bits.
constexpr std::array<float, 16> int4_numbers = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

/// Bytes from the first to each part; the scales are aligned to their type.
struct PartsOfCodes {
    std::int64_t ranges = 0, scales = 0, end = 0;

    explicit PartsOfCodes(const CodedMatrix& of) {
        const std::int64_t count = of.rows * of.columns;
        if (is_fp8(of.layout)) {
            ranges = scales = end = 2 * count;
            return;
        }
        ranges = scales = align_up(of.layout == Layout::int8 ? count : (count + 1) / 2, 4);
        if (of.layout == Layout::nf4) {
            scales = ranges + 4 * nf4_ranges(count);
            end = scales + nf4_scales(count);
        } else if (of.layout == Layout::int4) {
            end = scales + 2 * of.rows * ceil_div(of.columns, weights_of_group);
        } else {
            end = scales + 4 * of.rows;
        }
    }
};

void write_int4(const CodedMatrix& of, std::span<const float> weights, std::uint8_t* codes, BF16* scales) {
    for (std::int64_t row = 0; row < of.rows; ++row)
        for (std::int64_t column = 0; column < of.columns; column += weights_of_group) {
            const std::int64_t first = row * of.columns + column;
            const std::int64_t count = std::min(weights_of_group, of.columns - column);
            const WeightGroup group =
                group_of(weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
            *scales++ = group.scale;
            for (std::int64_t i = 0; i < count; ++i)
                set_s4(codes, first + i, group.numbers[static_cast<std::size_t>(i)]);
        }
}

void write_int8(const CodedMatrix& of, std::span<const float> weights, std::uint8_t* codes, float* scales) {
    for (std::int64_t row = 0; row < of.rows; ++row) {
        const float* const x = weights.data() + row * of.columns;
        float most = 0;
        for (std::int64_t i = 0; i < of.columns; ++i)
            most = std::isfinite(x[i]) ? std::max(most, std::abs(x[i]))
                                       : std::numeric_limits<float>::quiet_NaN();
        // Once it is NaN, it stays: comparisons with it are false.
        scales[row] = most / largest_byte;
        const float factor = most > 0 ? largest_byte / most : 0.0f;
        for (std::int64_t i = 0; i < of.columns; ++i)
            codes[row * of.columns + i] = static_cast<std::uint8_t>(to_s8(x[i] * factor));
    }
}

ShortFormat format_of(Layout layout) {
    return layout == Layout::e4m3 ? ShortFormat::e4m3 : ShortFormat::e5m2;
}

void write_fp8(const CodedMatrix& of, std::span<const float> numbers, std::uint8_t* codes) {
    const std::int64_t count = of.rows * of.columns;
    for (std::int64_t i = 0; i < count; ++i) {
        codes[i] = code_of(format_of(of.layout), numbers[static_cast<std::size_t>(i)]);
        codes[count + i % of.columns * of.rows + i / of.columns] = codes[i];
    }
}

}  // namespace

std::string_view name_of(Layout layout) { return layout_names.at(static_cast<std::size_t>(layout)); }

Layout layout_named(std::string_view name) {
    const auto* const found = std::ranges::find(layout_names, name);
    check(found != layout_names.end(), "a layout has that name");
    return static_cast<Layout>(found - layout_names.begin());
}

std::int64_t coded_bytes(const CodedMatrix& matrix) { return PartsOfCodes(matrix).end; }

void write_codes(const CodedMatrix& matrix, std::span<const float> weights, std::byte* to) {
    const PartsOfCodes parts(matrix);
    check(std::ssize(weights) == matrix.rows * matrix.columns, "there is a weight for each code");
    auto* const codes = reinterpret_cast<std::uint8_t*>(to);
    if (is_fp8(matrix.layout)) return write_fp8(matrix, weights, codes);
    if (matrix.layout == Layout::nf4) {
        const Nf4Weights made = nf4_of(weights);
        std::ranges::copy(made.codes, codes);
        std::memcpy(to + parts.ranges, made.ranges.data(), made.ranges.size() * sizeof(float));
        std::memcpy(to + parts.scales, made.scales.data(), made.scales.size());
        return;
    }
    if (matrix.layout == Layout::int4)
        write_int4(matrix, weights, codes, reinterpret_cast<BF16*>(to + parts.scales));
    else
        write_int8(matrix, weights, codes, reinterpret_cast<float*>(to + parts.scales));
}

CodedSource source_of(const CodedMatrix& matrix, const void* bytes) {
    check(!is_fp8(matrix.layout), "no product widens FP8");
    const PartsOfCodes parts(matrix);
    const auto* const from = static_cast<const std::byte*>(bytes);
    CodedSource source{.layout = matrix.layout,
                       .columns = matrix.columns,
                       .codes = reinterpret_cast<const std::uint8_t*>(from),
                       .numbers = int4_numbers.data(),
                       .scales = from + parts.scales};
    if (matrix.layout != Layout::nf4) return source;
    source.numbers = nf4_numbers.data();
    source.scale_numbers = nf4_scale_numbers().data();
    source.ranges = reinterpret_cast<const float*>(from + parts.ranges);
    source.mean = source.ranges[nf4_ranges(matrix.rows * matrix.columns) - 1];
    return source;
}

void read_codes(const CodedMatrix& matrix, const std::byte* from, std::int64_t first, std::span<float> to) {
    if (is_fp8(matrix.layout)) {
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] = value_of(format_of(matrix.layout),
                             static_cast<std::uint8_t>(from[static_cast<std::size_t>(first) + i]));
        return;
    }
    WidenedPart part{.from = source_of(matrix, from), .rows = 1};
    for (std::int64_t done = 0; done < std::ssize(to); done += part.columns) {
        part.row = (first + done) / matrix.columns;
        part.column = (first + done) % matrix.columns;
        part.columns = std::min(matrix.columns - part.column, std::ssize(to) - done);
        part.to = to.data() + done;
        widen_part<WidenOneByOne>(part);
    }
}

}  // namespace mantissa
