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

constexpr std::size_t size = weights_of_group;
using Weights = std::array<float, size>;

/// The candidates for the quantised value of the largest weight. Of normally distributed weights, 19
/// candidates, a tenth apart, leave 0.2 % less squared error than these, and four leave 1.6 % more.
constexpr std::array candidates = {-6.5f, -6.9f, -7.3f, -7.7f, -8.1f, -8.5f, -8.9f};

/// To the nearest in -8 ... 7: beyond 1.5 2^23 the next FP32 number is 1 away.
inline float whole(float x) {
    constexpr float far = 12582912.0f;
    return std::clamp(x, -8.0f, 7.0f) + far - far;
}

/// The sums of squares of the numbers under `factor`, and of their products with the weights, in eight lanes.
struct Fit {
    float products = 0, squares = 0;

    Fit(const Weights& weights, float factor) {
        std::array<float, 8> by_product = {}, by_square = {};
        for (std::size_t i = 0; i < size; i += 8)
            for (std::size_t lane = 0; lane < 8; ++lane) {
                const float weight = weights[i + lane], number = whole(weight * factor);
                by_product[lane] += weight * number;
                by_square[lane] += number * number;
            }
        for (std::size_t lane = 0; lane < 8; ++lane) {
            products += by_product[lane];
            squares += by_square[lane];
        }
    }

    /// The amount by which it lowers the squared error.
    float gain() const { return products * (products / squares); }
    float scale() const { return products / squares; }
};

float largest_of(const Weights& weights) {
    return *std::ranges::max_element(weights, {}, [](float x) { return std::abs(x); });
}

}  // namespace

WeightGroup group_of(std::span<const float> given) {
    Weights weights = {};
    std::ranges::copy(given, weights.begin());
    WeightGroup group;
    if (!std::ranges::all_of(weights, [](float x) { return std::isfinite(x); })) {
        group.scale = to_bf16(std::numeric_limits<float>::quiet_NaN());
        return group;
    }
    const float largest = largest_of(weights);
    // Numbers so small that their squares vanish are as good as zeros.
    if (std::abs(largest) < 1e-15f) return group;
    float scale = 0, most = -1;
    for (const float candidate : candidates) {
        const Fit fit(weights, candidate / largest);
        if (fit.gain() <= most) continue;
        most = fit.gain();
        scale = fit.scale();
    }
    group.scale = to_bf16(scale);
    const float factor = 1 / to_f32(group.scale);
    for (std::size_t i = 0; i < size; ++i)
        group.numbers[i] = static_cast<std::int8_t>(whole(weights[i] * factor));
    return group;
}

namespace {

std::array<float, 256> made_scale_numbers() {
    std::array<float, 256> numbers{};
    std::size_t next = 0;
    constexpr int decades = 7;
    for (int decade = 0; decade < decades; ++decade) {
        const int count = 1 << decade;
        const double power = std::pow(10.0, decade - (decades - 1));
        // The middles of as many parts of 0.1 to 1, whose ends FP32 holds.
        const auto end = [&](int i) {
            const float step = (1.0f - 0.1f) / static_cast<float>(count);
            return i < (count + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                       : std::fma(-step, static_cast<float>(count - i), 1.0f);
        };
        for (int i = 0; i < count; ++i) {
            const float middle = (end(i) + end(i + 1)) / 2.0f;
            const float number = static_cast<float>(power) * middle;
            numbers[next++] = number;
            numbers[next++] = -number;
        }
    }
    numbers[next++] = 0;
    numbers[next++] = 1;
    std::ranges::sort(numbers);
    return numbers;
}

/// The code of the number nearest to x among ascending ones.
template <std::size_t count>
std::uint8_t nearest(const std::array<float, count>& numbers, float x) {
    std::size_t low = 0, high = count - 1;
    while (low < high) {  // the first whose middle to the next is not below x
        const std::size_t middle = (low + high) / 2;
        if (x > (numbers[middle] + numbers[middle + 1]) / 2.0f)
            low = middle + 1;
        else
            high = middle;
    }
    return static_cast<std::uint8_t>(low);
}

/// Codes of a block: how many middles between neighbours are below x. As nearest() finds, for many at once.
void find_codes(std::span<const float> block, float inverse, std::array<std::int32_t, nf4_block>& codes) {
    std::array<float, 15> middles{};
    for (std::size_t i = 0; i < middles.size(); ++i)
        middles[i] = (nf4_numbers[i] + nf4_numbers[i + 1]) / 2.0f;
    codes = {};
    for (const float middle : middles)
        for (std::size_t i = 0; i < block.size(); ++i) codes[i] += block[i] * inverse > middle ? 1 : 0;
}

float largest_magnitude(std::span<const float> values) {
    float most = 0;
    for (const float value : values) {
        if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
        most = std::max(most, std::abs(value));
    }
    return most;
}

}  // namespace

const std::array<float, 256>& nf4_scale_numbers() {
    static const std::array<float, 256> numbers = made_scale_numbers();
    return numbers;
}

Nf4Weights nf4_of(std::span<const float> weights) {
    const std::int64_t count = std::ssize(weights), blocks = nf4_scales(count);
    Nf4Weights made{.codes = std::vector<std::uint8_t>(static_cast<std::size_t>((count + 1) / 2)),
                    .scales = std::vector<std::uint8_t>(static_cast<std::size_t>(blocks)),
                    .ranges = std::vector<float>(static_cast<std::size_t>(nf4_ranges(count)))};
    std::vector<float> scales(static_cast<std::size_t>(blocks));
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * nf4_block, size = std::min(nf4_block, count - first);
        const auto of_block =
            weights.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
        const float most = largest_magnitude(of_block);
        scales[static_cast<std::size_t>(block)] = most;
        sum += static_cast<double>(most);
        const float inverse = most > 0 ? 1.0f / most : 0.0f;
        std::array<std::int32_t, nf4_block> codes;
        find_codes(of_block, inverse, codes);
        for (std::int64_t i = 0; i < size; ++i)
            made.codes[static_cast<std::size_t>((first + i) / 2)] |=
                static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)] << (i % 2 == 0 ? 0 : 4));
    }
    const float mean = blocks > 0 ? static_cast<float>(sum / static_cast<double>(blocks)) : 0.0f;
    for (float& scale : scales) scale -= mean;
    for (std::int64_t first = 0; first < blocks; first += nf4_scale_block) {
        const auto size = static_cast<std::size_t>(std::min(nf4_scale_block, blocks - first));
        const auto some = std::span(scales).subspan(static_cast<std::size_t>(first), size);
        const float range = largest_magnitude(some);
        made.ranges[static_cast<std::size_t>(first / nf4_scale_block)] = range;
        const float inverse = range > 0 ? 1.0f / range : 0.0f;
        for (std::size_t i = 0; i < size; ++i)
            made.scales[static_cast<std::size_t>(first) + i] =
                nearest(nf4_scale_numbers(), std::clamp(some[i] * inverse, -1.0f, 1.0f));
    }
    made.ranges.back() = mean;
    return made;
}

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
