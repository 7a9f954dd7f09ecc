#include "mantissa/nn/models/resnet.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/nn/models/image_layers.h"

namespace mantissa::inline v0::nn {

namespace {

class ResNet {
  public:
    ResNet(const ResNetConfig& config, Graph& graph, const Mode& mode)
        : config_(config), graph_(graph), mode_(mode) {}

    Tensor logits(Tensor images) const {
        Tensor x = relu(normalised_convolution(  // [B, H/2, W/2, width]
            images, "conv1", "bn1",
            {.outputs = config_.sizes.width, .window = {7, 7}, .stride = {2, 2}, .padding = 3}));
        x = max_pool2d(x, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
        for (std::size_t i = 0; i < config_.blocks.size(); ++i) x = stage(x, i);
        const std::int64_t channels = x.dim(-1), classes = config_.sizes.classes;
        return linear(mean(x, {1, 2}), "fc",
                      {.outputs = classes, .weight = glorot_uniform(channels, classes)});
    }

  private:
    /// x [B, H, W, C] -> [B, H/s, W/s, 4 width 2^index], where s is 1 in the first stage and else 2.
    Tensor stage(Tensor x, std::size_t index) const {
        const std::int64_t channels = config_.sizes.width << index;
        for (std::int64_t i = 0; i < config_.blocks[index]; ++i) {
            const OriginScope scope(graph_, fmt::format("layer{}.{}", index + 1, i));
            const std::int64_t stride = i == 0 && index > 0 ? 2 : 1;
            const Tensor residual = bottleneck(x, channels, stride);
            x = relu(residual + (i == 0 ? projected(x, channels, stride) : x));
        }
        return x;
    }

    Tensor bottleneck(Tensor x, std::int64_t channels, std::int64_t stride) const {
        const bool first_strides = config_.version == ResNetVersion::v1;
        const std::int64_t first = first_strides ? stride : 1, second = first_strides ? 1 : stride;
        x = relu(normalised_convolution(x, "conv1", "bn1",
                                        {.outputs = channels, .window = {1, 1}, .stride = {first, first}}));
        x = relu(normalised_convolution(x, "conv2", "bn2",
                                        {.outputs = channels, .stride = {second, second}, .padding = 1}));
        return normalised_convolution(x, "conv3", "bn3", {.outputs = 4 * channels, .window = {1, 1}});
    }

    Tensor projected(Tensor x, std::int64_t channels, std::int64_t stride) const {
        const OriginScope scope(graph_, "downsample");
        return normalised_convolution(
            x, "0", "1", {.outputs = 4 * channels, .window = {1, 1}, .stride = {stride, stride}});
    }

    Tensor normalised_convolution(Tensor x, const char* convolution, const char* norm,
                                  Conv2dLayerOptions options) const {
        const bool keras = config_.version == ResNetVersion::v1;
        options.bias = keras;
        return batch_norm(conv2d(x, convolution, options), norm, mode_,
                          keras ? keras_batch_norm : torch_batch_norm);
    }

    const ResNetConfig& config_;
    Graph& graph_;
    const Mode& mode_;
};

void validate(const ResNetConfig& config) {
    validate(config.sizes, config.name);
    for (const std::int64_t blocks : config.blocks)
        if (blocks < 1)
            throw UserError(
                fmt::format("{}: a stage must have 1 block or more, got {}", config.name, blocks));
}

}  // namespace

Tensor resnet_logits(const ResNetConfig& config, Tensor images, const Mode& mode) {
    validate(config);
    return ResNet(config, images.graph(), mode).logits(images);
}

ImageModel resnet_model(const ResNetConfig& config) {
    validate(config);
    Configuration own = {{"version", std::string(config.version == ResNetVersion::v1 ? "v1" : "v1.5")}};
    for (std::size_t i = 0; i < config.blocks.size(); ++i)
        own.push_back({fmt::format("blocks_{}", i + 1), config.blocks[i]});
    return make_image_model(config.name, config.sizes, std::move(own),
                            [config](Tensor images, const Mode& mode) {
                                return ResNet(config, images.graph(), mode).logits(images);
                            });
}

}  // namespace mantissa::nn
