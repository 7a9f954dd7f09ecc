// Images with their classes on disk: a folder a class, or the binary files of CIFAR-10. Images are decoded
// when requested.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// Label of an image without a known class.
inline constexpr std::int32_t unknown_class = -2;

/// An image of a set, and its label.
struct ImageEntry {
    std::uint32_t file = 0, record = 0;  ///< record of a CIFAR-10 file; else 0
    std::int32_t label = 0;              ///< index into the classes, or unknown_class

    bool operator==(const ImageEntry&) const = default;
};

struct ImageSet {
    std::vector<std::string> classes = {};  ///< names, by label
    std::vector<std::string> files = {};
    std::vector<ImageEntry> images = {};
    /// The bytes of CIFAR-10's files; null: each file is an image.
    std::shared_ptr<const std::vector<MappedFile>> records = {};
    std::string folder = {};  ///< parent of the files: DIR, or its train/

    std::uint64_t count() const { return images.size(); }
    /// "DIR/cat/7.png", "DIR/data_batch_1.bin, record 7".
    std::string name(std::uint64_t index) const;
    /// The name below `folder`: "cat/7.png", "data_batch_1.bin, record 7".
    std::string name_in_folder(std::uint64_t index) const;
    /// Numbers of images and classes, and a checksum of names and classes; for CIFAR-10, of all bytes.
    std::string description() const;
    /// Bytes of all files, and a checksum of each file's size and of the content of some files, evenly
    /// spread; empty for CIFAR-10, since description() covers its bytes.
    std::string contents() const;
};

/// Decodes an image, at reduced size if its shorter side keeps `enough` pixels (decode_image). Throws
/// UserError that names it.
Image read_image(const ImageSet& set, std::uint64_t index, std::int64_t enough = 0);

/// The images for training, and the images kept for validation.
struct ImageSplit {
    ImageSet training, validation;  // of the same classes
    enum class Format : std::uint8_t { folders, cifar10 } format = Format::folders;
    std::string account = {};  ///< for users, in a line: choice of folders, skipped files
    bool held_out = false;     ///< validation images were taken from the training images
};

/// The images for validation if no folder has them.
enum class HoldOut : std::uint8_t {
    nothing,  ///< all are trained on
    by_name,  ///< about a tenth, by their names (held_out.h); a class keeps an image to train on
    by_seed   ///< a tenth of each class, drawn by the seed, as in earlier versions
};

struct ImageSplitOptions {
    HoldOut hold_out = HoldOut::nothing;
    std::uint64_t seed = 0;
};

/// The images of a directory: data_batch_*.bin and test_batch.bin, with the names of batches.meta.txt; or
/// train/CLASS/ and val/CLASS/; or CLASS/. training/ may replace train/. valid/, validation/ or, if none of
/// these exists, test/ may replace val/; case does not matter. Files are sorted by name; a class includes its
/// subfolders, linked ones too, except hidden ones. Throws UserError that names a missing, empty or damaged
/// item, or a class only in val/.
ImageSplit open_images(const std::filesystem::path& directory, const ImageSplitOptions& options);

}  // namespace mantissa
