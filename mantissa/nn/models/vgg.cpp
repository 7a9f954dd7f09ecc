#include "mantissa/nn/models/networks.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/formats/torchvision.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

namespace {

/// Stage i has width 2^i channels, but no more than this times the width.
constexpr std::int64_t max_widths = 8;

Tensor features(const VggConfig& config, Tensor x) {
    const OriginScope scope(x.graph(), "features");
    int layer = 0;  // torchvision counts convolutions, activations and pooling alike
    for (std::size_t stage = 0; stage < config.convolutions.size(); ++stage) {
        const std::int64_t channels = config.sizes.width * std::min(max_widths, std::int64_t{1} << stage);
        for (std::int64_t i = 0; i < config.convolutions[stage]; ++i, layer += 2)
            x = relu(conv2d(x, std::to_string(layer), {.outputs = channels, .padding = 1}));
        x = max_pool2d(x, {.window = {2, 2}, .stride = {2, 2}});
        ++layer;
    }
    return x;  // [B, H/32, W/32, 8 width]
}

/// x [B, C] -> [B, outputs].
Tensor connected(Tensor x, const char* name, std::int64_t outputs) {
    const OriginScope scope(x.graph(), "classifier");
    return linear(x, name, {.outputs = outputs, .weight = glorot_uniform(x.dim(-1), outputs)});
}

Tensor logits_of(const VggConfig& config, Tensor images, const Mode& mode) {
    Tensor x = features(config, images);
    if (x.dim(1) != vgg_pixels) x = adaptive_average_pool2d(x, {vgg_pixels, vgg_pixels});
    x = reshape(x, {x.dim(0), -1});  // [B, 7 * 7 * C]
    for (const char* name : {"0", "3"})
        x = dropout(relu(connected(x, name, config.hidden * config.sizes.width)), config.dropout, mode);
    return connected(x, "6", config.sizes.classes);
}

void validate(const VggConfig& config) {
    validate(config.sizes, config.name);
    for (const std::int64_t convolutions : config.convolutions)
        if (convolutions < 1)
            throw UserError(fmt::format("{}: a stage must have 1 convolution or more, got {}", config.name,
                                        convolutions));
    if (config.hidden < 1)
        throw UserError(fmt::format("{}: the hidden outputs must be 1 or more times the width, got {}",
                                    config.name, config.hidden));
    if (!(config.dropout >= 0 && config.dropout < 1))
        throw UserError(fmt::format("{}: dropout must be 0 or more and less than 1, got {}", config.name,
                                    config.dropout));
}

}  // namespace

ImageModel vgg_model(const VggConfig& config) {
    validate(config);
    Configuration own = {{"hidden", config.hidden}, {"dropout", config.dropout}};
    for (std::size_t i = 0; i < config.convolutions.size(); ++i)
        own.push_back({fmt::format("convolutions_{}", i + 1), config.convolutions[i]});
    return make_image_model(
        config.name, config.sizes, std::move(own),
        [config](Tensor images, const Mode& mode) { return logits_of(config, images, mode); });
}

}  // namespace mantissa::nn
