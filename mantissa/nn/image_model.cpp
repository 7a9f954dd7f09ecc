#include "mantissa/nn/image_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/formats/torchvision.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"
#include "mantissa/nn/models/networks.h"

namespace mantissa::inline v0::nn {

namespace {

/// The stages of each network halve an image five times.
constexpr std::int64_t smallest_image = 32;
/// Limits beyond any memory, and low enough that elements can be counted.
constexpr std::int64_t largest_image = 16384, max_channels = 16384, max_classes = 1 << 24;

struct ImageFamily {
    const char* name;
    ImageModel (*make)(const ImageSizes&);
    ImageSizes published = {};
};

/// CIFAR-10's sizes.
constexpr ImageSizes of_small_images{.classes = 10, .image = 32, .width = 16};

constexpr ImageFamily image_families[] = {
    {"ResNet50", [](const ImageSizes& sizes) { return resnet_model({.sizes = sizes}); }},
    {"ResNet50v1.5",
     [](const ImageSizes& sizes) {
         return resnet_model({.name = "ResNet50v1.5", .version = ResNetVersion::v1_5, .sizes = sizes});
     }},
    {"VGG19", [](const ImageSizes& sizes) { return vgg_model({.sizes = sizes}); }},
    {"DenseNet121", [](const ImageSizes& sizes) { return densenet_model({.sizes = sizes}); }},
    {"ResNet20",
     [](const ImageSizes& sizes) {
         return resnet_model(
             {.name = "ResNet20", .version = ResNetVersion::cifar, .blocks = {3, 3, 3}, .sizes = sizes});
     },
     of_small_images},
    {"ResNet56",
     [](const ImageSizes& sizes) {
         return resnet_model(
             {.name = "ResNet56", .version = ResNetVersion::cifar, .blocks = {9, 9, 9}, .sizes = sizes});
     },
     of_small_images}};

bool is_same_word(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) {
        return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
    });
}

const ImageFamily* find_family(std::string_view name) {
    for (const ImageFamily& family : image_families)
        if (is_same_word(family.name, name)) return &family;
    return nullptr;
}

const ImageFamily& family_of(std::string_view name) {
    const ImageFamily* family = find_family(name);
    if (!family)
        throw UserError(fmt::format("there is no network '{}'; there are: {}", name,
                                    fmt::join(image_model_names(), ", ")));
    return *family;
}

}  // namespace

void validate(const ImageSizes& sizes, std::string_view model) {
    const auto require = [&](const char* what, std::int64_t least, std::int64_t most, std::int64_t got) {
        if (got < least || got > most)
            throw UserError(fmt::format("{}: {} must be {} or more, and at most {}, got {}", model, what,
                                        least, most, got));
    };
    require("the classes", 2, max_classes, sizes.classes);
    require("the image size", smallest_image, largest_image, sizes.image);
    require("the width", 2, max_channels, sizes.width);
    if (sizes.width % 2 != 0)
        throw UserError(fmt::format("{}: the width must be even, got {}", model, sizes.width));
}

ImageModel make_image_model(std::string name, const ImageSizes& sizes, Configuration configuration,
                            std::function<Tensor(Tensor images, const Mode& mode)> logits) {
    validate(sizes, name);
    ImageModel made{.sizes = sizes};
    made.logits = std::move(logits);
    Model& model = made.model;
    model.name = std::move(name);
    model.unit = "images";
    model.inputs = {{"images", DType::f32, {sizes.image, sizes.image, 3}}, {"targets", DType::i32, {}}};
    model.loss = [logits = made.logits](Graph& graph, std::span<const Tensor> inputs, const Mode& mode) {
        const Tensor scores = logits(inputs[0], mode);
        const OriginScope scope(graph, "loss");
        return mode.may_lack_targets() ? counted_cross_entropy(scores, inputs[1])
                                       : cross_entropy(scores, inputs[1]);
    };
    model.output = {.name = "logits",
                    .trace = [logits = made.logits](Graph&, std::span<const Tensor> inputs,
                                                    const Mode& mode) { return logits(inputs[0], mode); }};
    model.configuration = {{"classes", sizes.classes}, {"image_size", sizes.image}, {"width", sizes.width}};
    for (Setting& setting : configuration) model.configuration.push_back(std::move(setting));
    model.files = std::make_shared<const WeightFiles>(torchvision_files(model.name));
    return made;
}

std::vector<std::string> image_model_names() {
    std::vector<std::string> names;
    for (const ImageFamily& family : image_families) names.emplace_back(family.name);
    return names;
}

bool is_image_model(std::string_view name) { return find_family(name) != nullptr; }

ImageSizes image_sizes(std::string_view name, const GivenImageSizes& given) {
    const ImageSizes& published = family_of(name).published;
    return {.classes = given.classes.value_or(published.classes),
            .image = given.image.value_or(published.image),
            .width = given.width.value_or(published.width)};
}

ImageModel image_model(std::string_view name) { return image_model(name, image_sizes(name)); }

ImageModel image_model(std::string_view name, const ImageSizes& sizes) { return family_of(name).make(sizes); }

namespace {

std::map<std::string, Shape> weights_of(const ImageModel& network) {
    Graph graph;
    trace_output(network.model, graph, 1);
    std::map<std::string, Shape> weights;
    for (const State& state : graph.states())
        if (is_weight(state)) weights.emplace(state.name, state.type.shape);
    return weights;
}

/// The weights with shapes that depend (`keep` false), or do not, on the number of classes.
std::vector<std::string> weights_that(bool keep, std::string_view name, const ImageSizes& sizes) {
    ImageSizes other = sizes;
    ++other.classes;
    const std::map<std::string, Shape> others = weights_of(image_model(name, other));
    std::vector<std::string> names;
    for (const auto& [weight, shape] : weights_of(image_model(name, sizes)))
        if ((others.at(weight) == shape) == keep) names.push_back(weight);
    return names;
}

}  // namespace

std::vector<std::string> head_of(std::string_view name, const ImageSizes& sizes) {
    return weights_that(false, name, sizes);
}

std::vector<std::string> trunk_of(std::string_view name, const ImageSizes& sizes) {
    return weights_that(true, name, sizes);
}

}  // namespace mantissa::nn
