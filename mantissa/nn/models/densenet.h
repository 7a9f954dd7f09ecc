// DenseNet: each layer reads the outputs of all earlier layers of its block. Huang, Liu, van der Maaten,
// Weinberger, "Densely connected convolutional networks", 2016; bottleneck layers, and transitions that halve
// the channels (DenseNet-BC), as in Keras and torchvision. The growth rate is half the width.
//
// Parameters for 1,000 classes: 7,978,856. Keras counts 8,062,504, with the 83,648 running means and
// variances of its 121 batch norms.
//
// Parameters have torchvision's names: features.conv0.weight, features.norm0.weight,
// features.denseblock1.denselayer1.norm1.weight, features.transition1.conv.weight, classifier.weight...
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0::nn {

struct DenseNetConfig {
    std::string name = "DenseNet121";
    std::array<std::int64_t, 4> layers = {6, 12, 24, 16};  ///< of each block; 1 or more
    ImageSizes sizes = {};
};

/// Throws UserError, naming the model, for sizes that no model can have.
ImageModel densenet_model(const DenseNetConfig& config);

}  // namespace mantissa::nn
