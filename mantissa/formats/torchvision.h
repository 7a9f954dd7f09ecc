// Networks for images in files of torchvision's state dicts: same names as here; filters that are stored
// [K, C, R, S] there and [R, S, C, K] here; and the first fully connected layer of a VGG, which reads channel
// by channel there and pixel by pixel here.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/formats/weight_files.h"

namespace mantissa::inline v0 {

/// Rows and columns of pixels that the first fully connected layer of a VGG reads.
inline constexpr std::int64_t vgg_pixels = 7;

/// The rules of their files for the network of that name. `num_batches_tracked`, which they count beside
/// running statistics, is no parameter.
WeightFiles torchvision_files(const std::string& network);

}  // namespace mantissa
