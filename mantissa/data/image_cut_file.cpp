// preprocessor_config.json: how images are cut for a network, kept beside its weights under the names that
// the transformers library gives them.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/image_cut.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

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

/// In as few digits as tell them apart.
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
    // Members that say otherwise how images become pixels.
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
