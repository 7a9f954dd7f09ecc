// Networks that classify images, as values, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

/// Sizes shared by the networks; published ones unless said otherwise.
struct ImageSizes {
    std::int64_t classes = 1000;
    std::int64_t image = 224;  // H = W
    /// Channels of the first convolution; all other layers' channels are proportional.
    std::int64_t width = 64;

    bool operator==(const ImageSizes&) const = default;
};

struct ImageModel {
    ImageSizes sizes;
    /// In training: inputs `images` f32 [H, W, 3] and `targets` i32 [], the class; the loss is the
    /// cross-entropy.
    Model model = {};
    /// images [B, H, W, 3] -> [B, classes].
    std::function<Tensor(Tensor images, const Mode& mode)> logits = {};
};

/// ResNet50, ResNet50v1.5, VGG19, DenseNet121; for images of 32 x 32 pixels ResNet20 and ResNet56.
std::vector<std::string> image_model_names();

/// The network of that name, as published. Throws UserError, naming the known networks, for another name.
ImageModel image_model(std::string_view name);
/// The network in other sizes. Throws UserError as validate does, too.
ImageModel image_model(std::string_view name, const ImageSizes& sizes);

/// Names of the weights with shapes that depend on the number of classes: made anew for other classes.
std::vector<std::string> head_of(std::string_view name, const ImageSizes& sizes);

/// Names of all other weights.
std::vector<std::string> trunk_of(std::string_view name, const ImageSizes& sizes);

}  // namespace mantissa::nn
