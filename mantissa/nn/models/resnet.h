// Residual networks. He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015: with
// bottleneck blocks for ImageNet, with identity or projection shortcuts (option B), and with basic blocks for
// CIFAR-10.
//
// v1 as in Keras (its ResNet50): a block's first 1x1 convolution has the stride, convolutions have biases.
// v1.5 as in torchvision (its resnet50): the 3x3 convolution has the stride, convolutions have no biases.
// Parameters for 1,000 classes: v1 25,583,592, v1.5 25,557,032. Keras counts 25,636,712 for v1, with the
// 53,120 running means and variances of its 53 batch norms.
//
// cifar as in section 4.2: a 3x3 convolution, three stages of blocks of two 3x3 convolutions, shortcuts
// without parameters (option A: every other pixel, and zeros for new channels). Batch norms are
// torchvision's, convolutions have no biases. For 10 classes ResNet20 has 269,722 parameters, ResNet56
// 853,018.
//
// Parameters have torchvision's names: conv1.weight, bn1.weight, layer1.0.conv1.weight,
// layer1.0.downsample.0.weight, fc.weight...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0::nn {

enum class ResNetVersion : std::uint8_t { v1, v1_5, cifar };

struct ResNetConfig {
    std::string name = "ResNet50";
    ResNetVersion version = ResNetVersion::v1;
    std::vector<std::int64_t> blocks = {3, 4, 6, 3};  ///< of each stage; 1 or more
    ImageSizes sizes = {};
};

/// Throws UserError, naming the model, for sizes that no model can have.
ImageModel resnet_model(const ResNetConfig& config);

}  // namespace mantissa::nn
