// Pictures with their classes, as they lie on a disk: a folder a class, or the binary files of CIFAR-10.
// Nothing is decoded before it is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/formats/picture.h"

namespace mantissa::inline v0 {

/// The label of a picture of which nobody says what is on it.
inline constexpr std::int32_t unknown_class = -2;

/// A picture of a set, and what is on it.
struct PictureEntry {
    std::uint32_t file = 0, record = 0;  ///< the record of a file of CIFAR-10; else 0
    std::int32_t label = 0;              ///< an index of the classes, or unknown_class

    bool operator==(const PictureEntry&) const = default;
};

struct PictureSet {
    std::vector<std::string> classes = {};  ///< names, by label
    std::vector<std::string> files = {};
    std::vector<PictureEntry> pictures = {};
    /// The files' bytes, where they are CIFAR-10's; null: each file is a picture.
    std::shared_ptr<const std::vector<MappedFile>> records = {};

    std::uint64_t count() const { return pictures.size(); }
    /// "DIR/cat/7.png", "DIR/data_batch_1.bin, record 7".
    std::string name(std::uint64_t index) const;
    /// How many there are of how many classes, and a checksum of names and classes, of CIFAR-10's of all
    /// bytes.
    std::string description() const;
};

/// The picture, decoded at a part of its size where `enough` pixels of its shorter side are left
/// (decode_picture). Throws UserError that names it.
Picture read_picture(const PictureSet& set, std::uint64_t index, std::int64_t enough = 0);

/// The pictures that are trained on, and those that are kept from it.
struct PictureSplit {
    PictureSet training, validation;  // of the same classes
    enum class Format : std::uint8_t { folders, cifar10 } format = Format::folders;
    std::string account = {};  ///< for people, in a line: what was taken for what, and what was left out
    bool held_out = false;     ///< the validation set is a tenth of the pictures of training
};

struct PictureSplitOptions {
    /// Where nothing says which pictures are for validation, a tenth of each class is, chosen by the seed;
    /// else all are trained on.
    bool hold_out = false;
    std::uint64_t seed = 0;
};

/// The pictures of a directory: data_batch_*.bin and test_batch.bin, with the names of batches.meta.txt; or
/// train/CLASS/ and val/CLASS/; or CLASS/. Training is the other name of train/, valid/ and validation/ are
/// those of val/, test/ is where none of these is; capitals do not matter. Files are sorted by name; folders
/// inside that of a class belong to it, linked ones too, but no hidden ones. Throws UserError that names what
/// is missing, empty, damaged, or only in val/.
PictureSplit open_pictures(const std::filesystem::path& directory, const PictureSplitOptions& options);

}  // namespace mantissa
