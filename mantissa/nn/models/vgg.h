// VGG: 3x3 convolutions and max pooling, then three fully connected layers. Simonyan, Zisserman, "Very deep
// convolutional networks for large-scale image recognition", 2014. VGG19 is configuration E, as in Keras and
// torchvision, without batch norms. Parameters for 1,000 classes: 143,667,240.
//
// For images other than 224 x 224 the last 7 x 7 pixels are averages, as in torchvision, so that the same
// weights serve every size. Dropout is an option: torchvision has 0.5 and Keras none.
//
// Parameters have torchvision's names: features.0.weight, ..., features.34.bias, classifier.0.weight...
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0::nn {

struct VggConfig {
    std::string name = "VGG19";
    std::array<std::int64_t, 5> convolutions = {2, 2, 4, 4, 4};  ///< of each stage; 1 or more
    std::int64_t hidden = 64;  ///< outputs of the first two fully connected layers, times the width
    double dropout = 0;        ///< of the outputs of these two layers, in training
    ImageSizes sizes = {};
};

/// Throws UserError, naming the model, for sizes that no model can have.
ImageModel vgg_model(const VggConfig& config);

}  // namespace mantissa::nn
