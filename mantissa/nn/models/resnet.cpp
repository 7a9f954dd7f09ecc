#include "mantissa/nn/models/networks.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/image_model_parts.h"

namespace mantissa::inline v0::nn {

namespace {

/// Each stage doubles the channels; the published networks have four stages at most.
constexpr std::size_t max_stages = 8;

std::string_view name_of(ResNetVersion version) {
    static constexpr std::array<std::string_view, 3> names = {"v1", "v1.5", "cifar"};
    return names.at(static_cast<std::size_t>(version));
}

class ResNet {
  public:
    ResNet(const ResNetConfig& config, Graph& graph, const Mode& mode)
        : config_(config), graph_(graph), mode_(mode) {}

    Tensor logits(Tensor images) const {
        Tensor x = is_cifar() ? small_stem(images) : stem(images);
        for (std::size_t i = 0; i < config_.blocks.size(); ++i) x = stage(x, i);
        const std::int64_t channels = x.dim(-1), classes = config_.sizes.classes;
        return linear(mean(x, {1, 2}), "fc",
                      {.outputs = classes, .weight = glorot_uniform(channels, classes)});
    }

  private:
    bool is_cifar() const { return config_.version == ResNetVersion::cifar; }

    /// [B, H, W, 3] -> [B, H/4, W/4, width].
    Tensor stem(Tensor images) const {
        const Tensor x = relu(normalised_convolution(
            images, "conv1", "bn1",
            {.outputs = config_.sizes.width, .window = {7, 7}, .stride = {2, 2}, .padding = 3}));
        return max_pool2d(x, {.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}});
    }

    /// [B, H, W, 3] -> [B, H, W, width].
    Tensor small_stem(Tensor images) const {
        return relu(
            normalised_convolution(images, "conv1", "bn1", {.outputs = config_.sizes.width, .padding = 1}));
    }

    /// x [B, H, W, C] -> [B, H/s, W/s, width 2^index], or four times as many channels for bottlenecks; s is 1
    /// in the first stage and 2 in the others.
    Tensor stage(Tensor x, std::size_t index) const {
        const std::int64_t channels = config_.sizes.width << index;
        for (std::int64_t i = 0; i < config_.blocks[index]; ++i) {
            const OriginScope scope(graph_, fmt::format("layer{}.{}", index + 1, i));
            const std::int64_t stride = i == 0 && index > 0 ? 2 : 1;
            if (is_cifar()) {
                x = relu(basic(x, channels, stride) + (stride == 2 ? subsampled(x, channels) : x));
                continue;
            }
            const Tensor residual = bottleneck(x, channels, stride);
            x = relu(residual + (i == 0 ? projected(x, channels, stride) : x));
        }
        return x;
    }

    Tensor basic(Tensor x, std::int64_t channels, std::int64_t stride) const {
        x = relu(normalised_convolution(x, "conv1", "bn1",
                                        {.outputs = channels, .stride = {stride, stride}, .padding = 1}));
        return normalised_convolution(x, "conv2", "bn2", {.outputs = channels, .padding = 1});
    }

    /// Every other pixel, between channels of zeros.
    Tensor subsampled(Tensor x, std::int64_t channels) const {
        const std::int64_t added = channels - x.dim(-1);
        const Tensor pixels = average_pool2d(x, {.window = {1, 1}, .stride = {2, 2}});
        return pad(pixels, 3, added / 2, added - added / 2);
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
    if (config.blocks.empty() || config.blocks.size() > max_stages)
        throw UserError(fmt::format("{}: the stages must be 1 or more, and at most {}, got {}", config.name,
                                    max_stages, config.blocks.size()));
    for (const std::int64_t blocks : config.blocks)
        if (blocks < 1)
            throw UserError(
                fmt::format("{}: a stage must have 1 block or more, got {}", config.name, blocks));
}

}  // namespace

ImageModel resnet_model(const ResNetConfig& config) {
    validate(config);
    Configuration own = {{"version", std::string(name_of(config.version))}};
    for (std::size_t i = 0; i < config.blocks.size(); ++i)
        own.push_back({fmt::format("blocks_{}", i + 1), config.blocks[i]});
    return make_image_model(config.name, config.sizes, std::move(own),
                            [config](Tensor images, const Mode& mode) {
                                return ResNet(config, images.graph(), mode).logits(images);
                            });
}

}  // namespace mantissa::nn
