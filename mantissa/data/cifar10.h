// The binary files of CIFAR-10: records of a byte that says the class, and 32 x 32 pixels, all red ones
// first, then green, then blue. Krizhevsky, "Learning multiple layers of features from tiny images", 2009;
// https://www.cs.toronto.edu/~kriz/cifar.html says the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

inline constexpr std::int64_t cifar10_side = 32;
inline constexpr std::size_t cifar10_record_bytes = 1 + 3 * cifar10_side * cifar10_side;

/// The image of a record, which must be there.
Image cifar10_image(std::span<const std::byte> file, std::uint32_t record);

}  // namespace mantissa
