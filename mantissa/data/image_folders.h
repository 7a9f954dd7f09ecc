// How open_images reads each of the formats that it knows, and which images a prediction is asked for.
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

struct ImagesToPredict {
    ImageSet set;
    std::string left_out = {};  ///< of folders, in words; empty: nothing
};

/// In the order of the paths, of a folder in the order of names. A image in a folder that is named like a
/// class counts as one of that class, the innermost such folder of its path; others have unknown_class. A
/// folder with CIFAR-10's files stands for its test_batch.bin, and then is the only path. Throws UserError
/// that names a path that is not there, or a folder without images.
ImagesToPredict images_to_predict(const std::vector<std::string>& paths,
                                  const std::vector<std::string>& classes);

}  // namespace mantissa
