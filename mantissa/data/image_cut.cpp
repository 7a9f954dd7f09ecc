#include "mantissa/data/image_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// The pixels of one axis that make up a pixel of the result, with weights that add up to 1; none: it lies in
/// the padding.
struct Taps {
    std::int64_t first = 0;
    std::vector<float> weights = {};
};

/// Taps of pixel `index` where `from` pixels are resized to `to`.
Taps taps_of(std::int64_t index, std::int64_t from, std::int64_t to) {
    if (index < 0 || index >= to) return {};
    const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
    const double center = (static_cast<double>(index) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(center - reach + 0.5)));
    const auto end = std::min(from, static_cast<std::int64_t>(std::floor(center + reach + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
        const double distance = std::abs(static_cast<double>(i) + 0.5 - center) / reach;
        sum += weights.emplace_back(std::max(0.0, 1 - distance));
    }
    Taps taps{.first = first};
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
    return taps;
}

/// Taps of each pixel of the result along an axis of `from` pixels, resized to `resized`.
std::vector<Taps> taps_along(std::int64_t from, std::int64_t resized, std::int64_t image,
                             std::int64_t padding, std::uint32_t where) {
    const auto places = static_cast<std::uint64_t>(resized + 2 * padding - image + 1);
    const auto begin = static_cast<std::int64_t>(places * where >> 32) - padding;
    std::vector<Taps> taps;
    for (std::int64_t i = 0; i < image; ++i) taps.push_back(taps_of(begin + i, from, resized));
    return taps;
}

struct Rows {
    std::int64_t first = 0, end = 0;
};

/// The rows of the image that anything is made of.
Rows rows_read(const std::vector<Taps>& down) {
    Rows rows{.first = std::numeric_limits<std::int64_t>::max()};
    for (const Taps& taps : down) {
        if (taps.weights.empty()) continue;
        rows.first = std::min(rows.first, taps.first);
        rows.end = std::max(rows.end, taps.first + static_cast<std::int64_t>(taps.weights.size()));
    }
    return rows;
}

/// A row of the image [W, 3] resized and cut: [image, 3].
void cut_row(const std::uint8_t* row, const std::vector<Taps>& right, float* to) {
    for (const Taps& taps : right) {
        float sum[3] = {};
        const std::uint8_t* pixel = row + 3 * taps.first;
        for (const float weight : taps.weights)
            for (float& channel : sum) channel += weight * static_cast<float>(*pixel++);
        to = std::copy(sum, sum + 3, to);
    }
}

}  // namespace

void cut_image(const Image& image, const ImageCut& cut, const CutPlace& place, std::span<float> to) {
    const std::int64_t S = cut.image, shorter = std::min(image.height, image.width);
    check(shorter > 0 && cut.resize + 2 * place.padding >= S, "an image has room for what is cut out of it");
    check(static_cast<std::int64_t>(to.size()) == S * S * 3, "what is cut is [image, image, 3]");
    const auto resized = [&](std::int64_t side) { return side * cut.resize / shorter; };
    const std::vector<Taps> down =
        taps_along(image.height, resized(image.height), S, place.padding, place.down);
    const std::vector<Taps> right =
        taps_along(image.width, resized(image.width), S, place.padding, place.right);
    const Rows rows = rows_read(down);
    const std::int64_t row_size = 3 * S;
    std::vector<float> narrow((rows.end - rows.first) * row_size);
    for (std::int64_t row = rows.first; row < rows.end; ++row)
        cut_row(image.pixels.data() + row * image.width * 3, right,
                narrow.data() + (row - rows.first) * row_size);
    std::vector<float> line(row_size);
    for (std::int64_t y = 0; y < S; ++y) {
        const Taps& taps = down[y];
        std::fill(line.begin(), line.end(), 0.0f);
        const float* from = narrow.data() + (taps.first - rows.first) * row_size;
        for (const float weight : taps.weights)
            for (float& value : line) value += weight * *from++;
        for (std::int64_t x = 0; x < S; ++x)
            for (std::size_t channel = 0; channel < 3; ++channel) {
                const std::int64_t at = y * S + (place.flipped ? S - 1 - x : x);
                to[static_cast<std::size_t>(3 * at) + channel] =
                    (line[static_cast<std::size_t>(3 * x) + channel] / 255.0f - cut.pixels.mean[channel]) /
                    cut.pixels.standard_deviation[channel];
            }
    }
}

}  // namespace mantissa
