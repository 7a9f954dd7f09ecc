// How open_images reads each of the formats that it knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/data/image_set.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// Whether the name ends like a image's: .jpg, .jpeg or .png, in any case.
bool is_image_file(const std::filesystem::path& path);

/// Whether there is a data_batch_*.bin or test_batch.bin.
bool holds_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_folders(const std::filesystem::path& directory);

inline constexpr std::int64_t cifar10_side = 32;
inline constexpr std::size_t cifar10_record_bytes = 1 + 3 * cifar10_side * cifar10_side;

/// The image of a record, which must be there.
Image cifar10_image(std::span<const std::byte> file, std::uint32_t record);

}  // namespace mantissa
