// Parts and sizes of image networks, for the networks and for programs that choose one by name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "mantissa/nn/image_model.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

/// Sizes that replace a network's own.
struct GivenImageSizes {
    std::optional<std::int64_t> classes = {}, image = {}, width = {};

    bool operator==(const GivenImageSizes&) const = default;
};

/// Throws UserError, naming the model, for less than two classes, an image smaller than 32 pixels, a width
/// that is odd or less than 2, and sizes far beyond any memory.
void validate(const ImageSizes& sizes, std::string_view model);

/// The model of a network with known logits. `configuration`: further settings that must be equal to resume.
ImageModel make_image_model(std::string name, const ImageSizes& sizes, Configuration configuration,
                            std::function<Tensor(Tensor images, const Mode& mode)> logits);

/// Whether the name is among image_model_names(), in any case of letters.
bool is_image_model(std::string_view name);

/// The network's published sizes, replaced by the given ones. Throws UserError, naming the known networks,
/// for another name.
ImageSizes image_sizes(std::string_view name, const GivenImageSizes& given = {});

/// Batch norms of Keras's and of torchvision's networks. Keras writes the momentum as 0.99.
inline constexpr BatchNormOptions keras_batch_norm{.epsilon = 1.001e-5, .momentum = 0.01};
inline constexpr BatchNormOptions torch_batch_norm{.epsilon = 1e-5, .momentum = 0.1};

}  // namespace mantissa::nn
