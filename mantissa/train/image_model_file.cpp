#include "mantissa/train/image_model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/image_cut.h"
#include "mantissa/formats/strict_json.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

namespace {

/// Key of the network's name among the run's options.
const std::string network_option = std::string(2, '-') + "model";  // two dashes, as it is typed

nn::ImageModel network_in(const nlohmann::json& state, const LoadedCheckpoint& checkpoint) {
    const std::string source = (checkpoint.directory / "state.json").string();
    const nlohmann::json& options = require_member(state, "options", source, "the state of the run");
    const auto named = options.find(network_option);
    if (named == options.end() || !named->is_array() || named->size() != 1 || !named->front().is_string() ||
        !nn::is_image_model(named->front().get<std::string>()))
        throw UserError(
            fmt::format("{}: its run trained no network for images; expected the "
                        "checkpoint of one that did",
                        checkpoint.directory.string()));
    const nlohmann::json& model =
        require_member(require_member(state, "configuration", source, "the state of the run"), "model",
                       source, "configuration");
    const auto size = [&](const char* name) {
        return static_cast<std::int64_t>(
            require_unsigned(require_member(model, name, source, "the model"), source, name));
    };
    return nn::image_model(named->front().get<std::string>(),
                           {.classes = size("classes"), .image = size("image_size"), .width = size("width")});
}

std::vector<std::string> classes_in(const LoadedCheckpoint& checkpoint, std::int64_t count) {
    std::vector<std::string> classes;
    if (const auto text = checkpoint.texts.find("classes.txt"); text != checkpoint.texts.end()) {
        std::istringstream lines(text->second);
        for (std::string line; std::getline(lines, line);) classes.push_back(line);
    }
    if (std::ssize(classes) > count)
        throw UserError(fmt::format(
            "{}: has {}, but the network tells {} apart", (checkpoint.directory / "classes.txt").string(),
            count_text(classes.size(), "line"), count_text(count, "class", "classes")));
    while (std::ssize(classes) < count) classes.push_back(fmt::format("{}", classes.size()));
    return classes;
}

/// The cut, read from the description of the run's inputs, where an earlier version saved no file of it.
std::optional<ImageCut> cut_in_words(const std::string& text, std::int64_t image) {
    const std::size_t resized = text.find("resized to "), means = text.find("means ");
    if (resized == std::string::npos || means == std::string::npos) return {};
    ImageCut cut{.image = image};
    long long resize = 0;
    auto& [mean, deviation] = cut.pixels;
    if (std::sscanf(text.c_str() + resized, "resized to %lld", &resize) != 1 ||
        std::sscanf(text.c_str() + means, "means %f %f %f deviations %f %f %f", &mean[0], &mean[1], &mean[2],
                    &deviation[0], &deviation[1], &deviation[2]) != 6)
        return {};
    cut.resize = resize;
    return cut;
}

ImageCut cut_in(const nlohmann::json& state, const LoadedCheckpoint& checkpoint, std::int64_t image) {
    if (const auto text = checkpoint.texts.find(image_cut_file); text != checkpoint.texts.end())
        return parse_image_cut(text->second, (checkpoint.directory / image_cut_file).string());
    const nlohmann::json words =
        state.value(nlohmann::json::json_pointer("/inputs/pictures"), nlohmann::json());
    const std::optional<ImageCut> cut =
        words.is_string() ? cut_in_words(words.get<std::string>(), image) : std::nullopt;
    if (!cut)
        throw UserError(fmt::format("{}: does not say how images are cropped: {} is missing",
                                    checkpoint.directory.string(), image_cut_file));
    return *cut;
}

}  // namespace

ImageModelFile::ImageModelFile(const std::filesystem::path& directory)
    : checkpoint_(load_checkpoint(directory, CheckpointUse::weights)) {
    const nlohmann::json state = parse_strict_json(checkpoint_.texts.at("state.json"),
                                                   (checkpoint_.directory / "state.json").string());
    network_ = network_in(state, checkpoint_);
    classes_ = classes_in(checkpoint_, network_.sizes.classes);
    cut_ = cut_in(state, checkpoint_, network_.sizes.image);
}

void ImageModelFile::load(StateBlock& state) const {
    read_weights(
        checkpoint_.model.views(), specs_of(state, is_own_weight), nn::files_of(network_.model),
        checkpoint_.model.path().string(),
        [&](const TensorSpec& weight, std::span<const std::byte> value) { state.write(weight.name, value); });
}

namespace {

void read_trunk(const nn::ImageModel& network, std::vector<TensorView> file, const std::string& source,
                StateBlock& state) {
    const std::vector<std::string> head = nn::head_of(network.model.name, network.sizes);
    const auto is_of_head = [&](const std::string& name) {
        return std::ranges::find(head, name) != head.end();
    };
    std::vector<TensorSpec> trunk = specs_of(state, is_own_weight);
    const WeightFiles& rules = nn::files_of(network.model);
    for (const TensorSpec& weight : trunk)
        if (is_of_head(weight.name))
            std::erase_if(file, [&](const TensorView& tensor) {
                return tensor.name == (rules.stored ? rules.stored(weight).name : weight.name);
            });
    std::erase_if(trunk, [&](const TensorSpec& weight) { return is_of_head(weight.name); });
    read_weights(file, trunk, rules, source, [&](const TensorSpec& weight, std::span<const std::byte> value) {
        state.write(weight.name, value);
    });
}

}  // namespace

void ImageModelFile::load_trunk(StateBlock& state) const {
    read_trunk(network_, checkpoint_.model.views(), checkpoint_.model.path().string(), state);
}

void load_trunk(const nn::ImageModel& network, const std::filesystem::path& path, StateBlock& state) {
    const SafetensorsModel file(path);
    read_trunk(network, file.views(), file.source(), state);
}

}  // namespace mantissa
