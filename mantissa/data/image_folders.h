// Readers of open_images for each known format, and the choice of images to predict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "mantissa/data/image_set.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// Whether the file has an image's extension: .jpg, .jpeg or .png, in any case.
bool is_image_file(const std::filesystem::path& path);

/// Files that were skipped.
struct LeftOut {
    std::uint64_t other_files = 0, beside = 0, hidden = 0;
    std::vector<std::string> folders = {}, links = {};

    /// The classes in a folder; counts other files beside them.
    std::vector<std::string> classes_in(const std::filesystem::path& directory);
    /// The images in a folder and its subfolders; counts all other files.
    std::vector<std::filesystem::path> images_below(const std::filesystem::path& folder);
    /// In words; empty: nothing was skipped.
    std::string text() const;
};

/// Whether there is a data_batch_*.bin or test_batch.bin.
bool holds_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_cifar10(const std::filesystem::path& directory);
/// Throws UserError as open_images does.
ImageSplit open_folders(const std::filesystem::path& directory);

inline constexpr std::int64_t cifar10_side = 32;
inline constexpr std::size_t cifar10_record_bytes = 1 + 3 * cifar10_side * cifar10_side;

/// The image of an existing record.
Image cifar10_image(std::span<const std::byte> file, std::uint32_t record);

struct ImagesToPredict {
    ImageSet set;
    std::string left_out = {};  ///< skipped files of folders, in words; empty: none
};

/// Images in the order of the paths; inside a folder, in the order of names. An image's class is the
/// innermost folder of its path with a class's name, or unknown_class. A folder with CIFAR-10's files means
/// its test_batch.bin, and must be the only path. Throws UserError that names a missing path, or a folder
/// without images.
ImagesToPredict images_to_predict(const std::vector<std::string>& paths,
                                  const std::vector<std::string>& classes);

}  // namespace mantissa
