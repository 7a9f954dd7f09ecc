// Images with their classes, as they lie on a disk: a folder a class, or the binary files of CIFAR-10.
// Nothing is decoded before it is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

/// The label of an image whose class nobody says.
inline constexpr std::int32_t unknown_class = -2;

/// A image of a set, and what is on it.
struct ImageEntry {
    std::uint32_t file = 0, record = 0;  ///< the record of a file of CIFAR-10; else 0
    std::int32_t label = 0;              ///< an index of the classes, or unknown_class

    bool operator==(const ImageEntry&) const = default;
};

struct ImageSet {
    std::vector<std::string> classes = {};  ///< names, by label
    std::vector<std::string> files = {};
    std::vector<ImageEntry> images = {};
    /// The files' bytes, where they are CIFAR-10's; null: each file is a image.
    std::shared_ptr<const std::vector<MappedFile>> records = {};
    std::string folder = {};  ///< below which the files lie: DIR, or its train/

    std::uint64_t count() const { return images.size(); }
    /// "DIR/cat/7.png", "DIR/data_batch_1.bin, record 7".
    std::string name(std::uint64_t index) const;
    /// The same below the folder, wherever that lies: "cat/7.png", "data_batch_1.bin, record 7".
    std::string name_in_folder(std::uint64_t index) const;
    /// How many there are of how many classes, and a checksum of names and classes, of CIFAR-10's of all
    /// bytes.
    std::string description() const;
    /// Bytes of all files, and a checksum of each one's size and of what stands in some of them, evenly
    /// spread; empty for CIFAR-10, whose bytes description() has.
    std::string contents() const;
};

/// The image, decoded at a part of its size where `enough` pixels of its shorter side are left
/// (decode_image). Throws UserError that names it.
Image read_image(const ImageSet& set, std::uint64_t index, std::int64_t enough = 0);

/// The images that are trained on, and those that are kept from it.
struct ImageSplit {
    ImageSet training, validation;  // of the same classes
    enum class Format : std::uint8_t { folders, cifar10 } format = Format::folders;
    std::string account = {};  ///< for people, in a line: what was taken for what, and what was left out
    bool held_out = false;     ///< the validation set was taken out of the images of training
};

/// The images that are for validation where no folder says which are.
enum class HoldOut : std::uint8_t {
    nothing,  ///< all are trained on
    by_name,  ///< about a tenth, by their names (held_out.h); a class keeps an image to train on
    by_seed   ///< a tenth of each class, drawn by the seed, as runs of earlier versions have it
};

struct ImageSplitOptions {
    HoldOut hold_out = HoldOut::nothing;
    std::uint64_t seed = 0;
};

/// The images of a directory: data_batch_*.bin and test_batch.bin, with the names of batches.meta.txt; or
/// train/CLASS/ and val/CLASS/; or CLASS/. Training is the other name of train/, valid/ and validation/ are
/// those of val/, test/ is where none of these is; capitals do not matter. Files are sorted by name; folders
/// inside that of a class belong to it, linked ones too, but no hidden ones. Throws UserError that names what
/// is missing, empty, damaged, or only in val/.
ImageSplit open_images(const std::filesystem::path& directory, const ImageSplitOptions& options);

}  // namespace mantissa
