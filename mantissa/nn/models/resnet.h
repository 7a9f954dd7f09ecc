// Residual networks. He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015: those of
// bottleneck blocks for ImageNet, with identity or projection shortcuts (option B), and those of basic blocks
// for CIFAR-10.
//
// v1 as Keras has it (its ResNet50): a block's first 1x1 convolution has the stride, convolutions have
// biases. v1.5 as torchvision has it (its resnet50): the 3x3 convolution has the stride, convolutions have
// none. Parameters of 1,000 classes: v1 25,583,592, v1.5 25,557,032. Keras counts 25,636,712 of v1, with the
// 53,120 running means and variances of its 53 batch norms.
//
// cifar as section 4.2 has it: a 3x3 convolution, three stages of blocks of two 3x3 convolutions, shortcuts
// without parameters (option A: every other pixel, and zeros for the channels that are new); batch norms as
// torchvision's, convolutions without biases. Of 10 classes ResNet20 has 269,722 parameters, ResNet56
// 853,018.
//
// Parameters carry torchvision's names: conv1.weight, bn1.weight, layer1.0.conv1.weight,
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

/// Throws UserError, naming the model, for sizes that make none.
ImageModel resnet_model(const ResNetConfig& config);

}  // namespace mantissa::nn
