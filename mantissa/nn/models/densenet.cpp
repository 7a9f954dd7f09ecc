#include "mantissa/nn/models/networks.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"

namespace mantissa::inline v0::nn {

namespace {

class DenseNet {
  public:
    DenseNet(const DenseNetConfig& config, Graph& graph, const Mode& mode)
        : config_(config), graph_(graph), mode_(mode) {}

    Tensor logits(Tensor images) const {
        const Tensor x = mean(features(images), {1, 2});
        const std::int64_t classes = config_.sizes.classes;
        return linear(x, "classifier", {.outputs = classes, .weight = glorot_uniform(x.dim(-1), classes)});
    }

  private:
    std::int64_t growth() const { return config_.sizes.width / 2; }

    Tensor features(Tensor x) const {
        const OriginScope scope(graph_, "features");
        x = conv2d(x, "conv0",
                   {.outputs = config_.sizes.width,
                    .window = {7, 7},
                    .stride = {2, 2},
                    .padding = 3,
                    .bias = false});
        x = max_pool2d(normalised(x, "norm0"), {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
        for (std::size_t i = 0; i < config_.layers.size(); ++i) {
            x = block(x, i);
            if (i + 1 < config_.layers.size()) x = transition(x, i);
        }
        return normalised(x, "norm5");
    }

    /// x [B, H, W, C] -> [B, H, W, C + layers * growth].
    Tensor block(Tensor x, std::size_t index) const {
        const OriginScope scope(graph_, fmt::format("denseblock{}", index + 1));
        for (std::int64_t i = 0; i < config_.layers[index]; ++i) {
            const std::array parts = {x, layer(x, fmt::format("denselayer{}", i + 1))};
            x = concat(parts, -1);
        }
        return x;
    }

    /// x [B, H, W, C] -> [B, H, W, growth].
    Tensor layer(Tensor x, const std::string& name) const {
        constexpr std::int64_t bottleneck = 4;  // times the growth rate
        const OriginScope scope(graph_, name);
        x = conv2d(normalised(x, "norm1"), "conv1",
                   {.outputs = bottleneck * growth(), .window = {1, 1}, .bias = false});
        return conv2d(normalised(x, "norm2"), "conv2", {.outputs = growth(), .padding = 1, .bias = false});
    }

    /// x [B, H, W, C] -> [B, H/2, W/2, C/2].
    Tensor transition(Tensor x, std::size_t index) const {
        const OriginScope scope(graph_, fmt::format("transition{}", index + 1));
        x = conv2d(normalised(x, "norm"), "conv",
                   {.outputs = x.dim(-1) / 2, .window = {1, 1}, .bias = false});
        return average_pool2d(x, {.window = {2, 2}, .stride = {2, 2}});
    }

    Tensor normalised(Tensor x, const char* name) const {
        return relu(batch_norm(x, name, mode_, keras_batch_norm));
    }

    const DenseNetConfig& config_;
    Graph& graph_;
    const Mode& mode_;
};

void validate(const DenseNetConfig& config) {
    validate(config.sizes, config.name);
    for (const std::int64_t layers : config.layers)
        if (layers < 1)
            throw UserError(
                fmt::format("{}: a block must have 1 layer or more, got {}", config.name, layers));
}

}  // namespace

ImageModel densenet_model(const DenseNetConfig& config) {
    validate(config);
    Configuration own;
    for (std::size_t i = 0; i < config.layers.size(); ++i)
        own.push_back({fmt::format("layers_{}", i + 1), config.layers[i]});
    return make_image_model(config.name, config.sizes, std::move(own),
                            [config](Tensor images, const Mode& mode) {
                                return DenseNet(config, images.graph(), mode).logits(images);
                            });
}

}  // namespace mantissa::nn
