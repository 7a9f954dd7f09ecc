// How open_images reads each of the formats that it knows.
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

/// Whether the name ends like a image's: .jpg, .jpeg or .png, in any case.
bool is_image_file(const std::filesystem::path& path);

/// Files that were passed over.
struct LeftOut {
    std::uint64_t other_files = 0, beside = 0, hidden = 0;
    std::vector<std::string> folders = {}, links = {};

    /// The classes in a folder; what lies beside them is counted.
    std::vector<std::string> classes_in(const std::filesystem::path& directory);
    /// The images in a folder and in those inside it; all else is counted.
    std::vector<std::filesystem::path> images_below(const std::filesystem::path& folder);
    /// In words; empty: nothing was passed over.
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

/// The image of a record, which must be there.
Image cifar10_image(std::span<const std::byte> file, std::uint32_t record);

}  // namespace mantissa
