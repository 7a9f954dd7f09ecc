#include "mantissa/data/image_cut.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

/// The source pixels along an axis for one result pixel, with weights that sum to 1; none: padding.
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

/// The rows of the image that the result needs.
Rows rows_read(const std::vector<Taps>& down) {
    Rows rows{.first = std::numeric_limits<std::int64_t>::max()};
    for (const Taps& taps : down) {
        if (taps.weights.empty()) continue;
        rows.first = std::min(rows.first, taps.first);
        rows.end = std::max(rows.end, taps.first + static_cast<std::int64_t>(taps.weights.size()));
    }
    return rows;
}

/// Resizes and cuts an image row [W, 3] to [image, 3].
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

namespace {

std::int64_t pixels_of(const nlohmann::json& object, const char* of, const char* side,
                       const std::string& source) {
    const std::string what = fmt::format("{}.{}", of, side);
    const std::uint64_t value = require_unsigned(
        require_member(require_member(object, of, source, of), side, source, what), source, what);
    if (value < 1 || value > static_cast<std::uint64_t>(max_pixels))
        throw UserError(
            fmt::format("{}: {} must be 1 to {} pixels, got {}", source, what, max_pixels, value));
    return static_cast<std::int64_t>(value);
}

std::array<float, 3> three_of(const nlohmann::json& object, const char* name, const std::string& source) {
    const nlohmann::json& list = require_member(object, name, source, name);
    std::array<float, 3> values{};
    bool fits = list.is_array() && list.size() == values.size();
    for (std::size_t i = 0; fits && i < values.size(); ++i) {
        fits = list[i].is_number() && std::isfinite(list[i].get<double>());
        if (fits) values[i] = list[i].get<float>();
    }
    if (!fits)
        throw UserError(
            fmt::format("{}: {} must be three numbers, got {}", source, name, json_excerpt(list)));
    return values;
}

/// Values with the fewest digits that identify them.
std::array<double, 3> in_few_digits(const std::array<float, 3>& values) {
    std::array<double, 3> few{};
    for (std::size_t i = 0; i < few.size(); ++i) few[i] = std::stod(fmt::format("{}", values[i]));
    return few;
}

}  // namespace

std::string image_cut_text(const ImageCut& cut) {
    const nlohmann::ordered_json json = {{"do_resize", true},
                                         {"size", {{"shortest_edge", cut.resize}}},
                                         {"resample", 2},
                                         {"do_center_crop", true},
                                         {"crop_size", {{"height", cut.image}, {"width", cut.image}}},
                                         {"do_rescale", true},
                                         {"do_normalize", true},
                                         {"image_mean", in_few_digits(cut.pixels.mean)},
                                         {"image_std", in_few_digits(cut.pixels.standard_deviation)}};
    return json.dump(2) + "\n";
}

ImageCut parse_image_cut(std::string_view text, const std::string& source) {
    const nlohmann::json json = parse_strict_json(text, source);
    // Members that must have these values.
    for (const auto& [name, only] : {std::pair<const char*, nlohmann::json>{"do_resize", true},
                                     {"resample", 2},
                                     {"do_center_crop", true},
                                     {"do_rescale", true},
                                     {"do_normalize", true}})
        if (json.contains(name) && json[name] != only)
            throw UserError(fmt::format("{}: {} is {}, only {} can be done", source, name,
                                        json_excerpt(json[name]), only.dump()));
    const ImageCut cut{.image = pixels_of(json, "crop_size", "height", source),
                       .resize = pixels_of(json, "size", "shortest_edge", source),
                       .pixels = {three_of(json, "image_mean", source), three_of(json, "image_std", source)}};
    if (pixels_of(json, "crop_size", "width", source) != cut.image)
        throw UserError(source + ": crop_size must be a square");
    if (cut.resize < cut.image)
        throw UserError(fmt::format("{}: size.shortest_edge, {}, must be crop_size, {}, or more", source,
                                    cut.resize, cut.image));
    for (const float standard_deviation : cut.pixels.standard_deviation)
        if (!(standard_deviation > 0))
            throw UserError(fmt::format("{}: image_std must be above 0, got {}", source, standard_deviation));
    return cut;
}

}  // namespace mantissa
