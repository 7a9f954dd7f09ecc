// Image networks of any size. Parameters have torchvision's names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/nn/image_model.h"

namespace mantissa::inline v0::nn {

/// DenseNet: each layer reads the outputs of all earlier layers of its block. Huang, Liu, van der Maaten,
/// Weinberger, "Densely connected convolutional networks", 2016; bottleneck layers, and transitions that
/// halve the channels (DenseNet-BC), as in Keras and torchvision. The growth rate is half the width.
///
/// Parameters for 1,000 classes: 7,978,856. Keras counts 8,062,504, with the 83,648 running means and
/// variances of its 121 batch norms.
///
/// Names: features.conv0.weight, features.norm0.weight, features.denseblock1.denselayer1.norm1.weight,
/// features.transition1.conv.weight, classifier.weight...
struct DenseNetConfig {
    std::string name = "DenseNet121";
    std::array<std::int64_t, 4> layers = {6, 12, 24, 16};  ///< of each block; 1 or more
    ImageSizes sizes = {};
};

/// Throws UserError, naming the model, for sizes that no model can have.
ImageModel densenet_model(const DenseNetConfig& config);

enum class ResNetVersion : std::uint8_t { v1, v1_5, cifar };

/// Residual networks. He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015: with
/// bottleneck blocks for ImageNet, with identity or projection shortcuts (option B), and with basic blocks
/// for CIFAR-10.
///
/// v1 as in Keras (its ResNet50): a block's first 1x1 convolution has the stride, convolutions have biases.
/// v1.5 as in torchvision (its resnet50): the 3x3 convolution has the stride, convolutions have no biases.
/// Parameters for 1,000 classes: v1 25,583,592, v1.5 25,557,032. Keras counts 25,636,712 for v1, with the
/// 53,120 running means and variances of its 53 batch norms.
///
/// cifar as in section 4.2: a 3x3 convolution, three stages of blocks of two 3x3 convolutions, shortcuts
/// without parameters (option A: every other pixel, and zeros for new channels). Batch norms are
/// torchvision's, convolutions have no biases. For 10 classes ResNet20 has 269,722 parameters, ResNet56
/// 853,018.
///
/// Names: conv1.weight, bn1.weight, layer1.0.conv1.weight, layer1.0.downsample.0.weight, fc.weight...
struct ResNetConfig {
    std::string name = "ResNet50";
    ResNetVersion version = ResNetVersion::v1;
    std::vector<std::int64_t> blocks = {3, 4, 6, 3};  ///< of each stage; 1 or more
    ImageSizes sizes = {};
};

/// Throws UserError, naming the model, for sizes that no model can have.
ImageModel resnet_model(const ResNetConfig& config);

/// VGG: 3x3 convolutions and max pooling, then three fully connected layers. Simonyan, Zisserman, "Very deep
/// convolutional networks for large-scale image recognition", 2014. VGG19 is configuration E, as in Keras and
/// torchvision, without batch norms. Parameters for 1,000 classes: 143,667,240.
///
/// For images other than 224 x 224 the last 7 x 7 pixels are averages, as in torchvision, so that the same
/// weights serve every size. Dropout is an option: torchvision has 0.5 and Keras none.
///
/// Names: features.0.weight, ..., features.34.bias, classifier.0.weight...
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
