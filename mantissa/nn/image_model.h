// Networks that say what is on a image, as values, by name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0::nn {

/// Shared by the networks; as published unless said otherwise.
struct ImageSizes {
    std::int64_t classes = 1000;
    std::int64_t image = 224;  // H = W
    /// Channels of the first convolution. All other layers' are in proportion.
    std::int64_t width = 64;

    bool operator==(const ImageSizes&) const = default;
};

struct ImageModel {
    ImageSizes sizes;
    /// In training: inputs `images` f32 [H, W, 3] and `targets` i32 [], the class; its loss is the
    /// cross-entropy.
    Model model = {};
    /// images [B, H, W, 3] -> [B, classes].
    std::function<Tensor(Tensor images, const Mode& mode)> logits = {};
};

/// ResNet50, ResNet50v1.5, VGG19, DenseNet121; for images of 32 x 32 pixels ResNet20 and ResNet56.
std::vector<std::string> image_model_names();

/// The network of that name, as published. Throws UserError, naming those there are, for another name.
ImageModel image_model(std::string_view name);
/// The same of other sizes. Throws UserError as validate does, too.
ImageModel image_model(std::string_view name, const ImageSizes& sizes);

/// The weights that follow the number of classes, by name: what is made anew for other classes.
std::vector<std::string> head_of(std::string_view name, const ImageSizes& sizes);

/// All others.
std::vector<std::string> trunk_of(std::string_view name, const ImageSizes& sizes);

}  // namespace mantissa::nn
