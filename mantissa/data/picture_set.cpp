#include "mantissa/data/picture_set.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/data/cifar10.h"
#include "mantissa/data/permutation.h"
#include "mantissa/data/picture_folders.h"

namespace mantissa::inline v0 {

namespace {

/// One picture of so many is kept from training.
constexpr std::uint64_t held_out_part = 10;

/// Tells this choice from the orders of epochs, which count from 0.
constexpr std::uint64_t of_held_out = ~std::uint64_t{0};

/// Moves a tenth of each class, rounded down, to the validation set: no class is left without a picture to
/// learn it from.
void hold_out(PictureSplit& split, const std::filesystem::path& directory, std::uint64_t seed) {
    std::map<std::int32_t, std::uint64_t> count, seen;
    for (const PictureEntry& picture : split.training.pictures) ++count[picture.label];
    const std::vector<PictureEntry> all = std::move(split.training.pictures);
    split.training.pictures.clear();
    split.validation = split.training;
    for (const PictureEntry& picture : all) {
        const std::uint64_t of_class = count[picture.label];
        const std::uint64_t place =
            shuffled(seen[picture.label]++, of_class, {.seed = seed, .epoch = of_held_out});
        (place < of_class / held_out_part ? split.validation : split.training).pictures.push_back(picture);
    }
    split.held_out = true;
    if (split.validation.pictures.empty())
        throw UserError(fmt::format(
            "{}: validation takes a tenth of each class, but none has {} images; give more, or a folder "
            "val/ beside train/",
            directory.string(), held_out_part));
}

}  // namespace

std::string PictureSet::name(std::uint64_t index) const {
    const PictureEntry& picture = pictures.at(index);
    return records ? fmt::format("{}, record {}", files[picture.file], picture.record) : files[picture.file];
}

std::string PictureSet::description() const {
    Checksum checksum;
    const auto add = [&](const std::string& text) {
        checksum.add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    };
    for (const std::string& name : classes) add(name);
    for (const PictureEntry& picture : pictures) {
        if (!records) add(std::filesystem::path(files[picture.file]).filename().string());
        checksum.add(std::as_bytes(std::span(&picture.record, 1)));
        checksum.add(std::as_bytes(std::span(&picture.label, 1)));
    }
    if (records)
        for (const MappedFile& file : *records) checksum.add(file.bytes());
    return fmt::format("{} pictures of {} classes, checksum {}", count(), classes.size(),
                       checksum_text(checksum.value()));
}

Picture read_picture(const PictureSet& set, std::uint64_t index, std::int64_t enough) {
    const PictureEntry& picture = set.pictures.at(index);
    if (set.records) return cifar10_picture((*set.records)[picture.file].bytes(), picture.record);
    const std::string& file = set.files[picture.file];
    const std::string bytes = read_file(file);
    return decode_picture(std::as_bytes(std::span(bytes)), file, enough);
}

PictureSplit open_pictures(const std::filesystem::path& directory, const PictureSplitOptions& options) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error))
        throw UserError(
            fmt::format("{}: {}; a folder of images was expected", directory.string(),
                        std::filesystem::exists(directory, error) ? "is no folder" : "does not exist"));
    PictureSplit split = holds_cifar10(directory) ? open_cifar10(directory) : open_folders(directory);
    if (options.hold_out && split.validation.pictures.empty()) hold_out(split, directory, options.seed);
    return split;
}

}  // namespace mantissa
