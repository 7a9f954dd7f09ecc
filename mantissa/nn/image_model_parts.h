// The parts of networks for images, and their sizes: for those that are there, and for programs that are
// asked for one by name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "mantissa/nn/image_model.h"
#include "mantissa/nn/layers.h"

namespace mantissa::inline v0::nn {

/// Sizes that take the place of a network's own.
struct GivenImageSizes {
    std::optional<std::int64_t> classes = {}, image = {}, width = {};

    bool operator==(const GivenImageSizes&) const = default;
};

/// Throws UserError, naming the model, for less than two classes, or an image smaller than 32 pixels. Throws
/// it, too, for a width that is odd or less than 2, and for sizes far beyond any memory.
void validate(const ImageSizes& sizes, std::string_view model);

/// The model of a network whose logits are known. `configuration`: what else must be equal to resume.
ImageModel make_image_model(std::string name, const ImageSizes& sizes, Configuration configuration,
                            std::function<Tensor(Tensor images, const Mode& mode)> logits);

/// Whether the name is one of image_model_names(), whatever the case of its letters.
bool is_image_model(std::string_view name);

/// The network's sizes as published, but for those that are given. Throws UserError, naming those there are,
/// for another name.
ImageSizes image_sizes(std::string_view name, const GivenImageSizes& given = {});

/// The batch norms of Keras's networks, and those of torchvision's. Keras writes the momentum as 0.99.
inline constexpr BatchNormOptions keras_batch_norm{.epsilon = 1.001e-5, .momentum = 0.01};
inline constexpr BatchNormOptions torch_batch_norm{.epsilon = 1e-5, .momentum = 0.1};

}  // namespace mantissa::nn
