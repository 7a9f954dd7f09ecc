// How open_images reads each of the formats that it knows.
#pragma once

#include "mantissa/data/image_set.h"

namespace mantissa::inline v0 {

/// Whether the name ends like a image's: .jpg, .jpeg or .png, in any case.
bool is_image_file(const std::filesystem::path& path);

/// Whether there is a data_batch_*.bin or test_batch.bin.
bool holds_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_folders(const std::filesystem::path& directory);

}  // namespace mantissa
