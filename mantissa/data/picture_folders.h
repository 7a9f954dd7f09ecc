// How open_pictures reads each of the formats that it knows.
#pragma once

#include "mantissa/data/picture_set.h"

namespace mantissa::inline v0 {

/// Whether the name ends like a picture's: .jpg, .jpeg or .png, in any case.
bool is_picture_file(const std::filesystem::path& path);

/// Whether there is a data_batch_*.bin or test_batch.bin.
bool holds_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_pictures does.
PictureSplit open_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_pictures does.
PictureSplit open_folders(const std::filesystem::path& directory);

}  // namespace mantissa
