// Image networks in torchvision's state dicts. Names equal ours; filters are stored [K, C, R, S] there and
// [R, S, C, K] here. VGG's first fully connected layer reads channel by channel there and pixel by pixel
// here.
#pragma once

#include <cstdint>
#include <string>

#include "mantissa/formats/weight_files.h"

namespace mantissa::inline v0 {

/// Rows and columns of pixels that VGG's first fully connected layer reads.
inline constexpr std::int64_t vgg_pixels = 7;

/// The rules of torchvision's files for that network. `num_batches_tracked`, stored beside running
/// statistics, is not a parameter.
WeightFiles torchvision_files(const std::string& network);

}  // namespace mantissa
