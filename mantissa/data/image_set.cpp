#include "mantissa/data/image_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/data/image_folders.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

/// One image of so many is kept from training.
constexpr std::uint64_t held_out_part = 10;

/// Images that contents() reads: a part of a second, however many there are.
constexpr std::uint64_t compared_images = 256;

/// Tells this choice from the orders of epochs, which count from 0.
constexpr std::uint64_t of_held_out = ~std::uint64_t{0};

/// Moves a tenth of each class, rounded down, to the validation set: no class is left without a image to
/// learn it from.
void hold_out(ImageSplit& split, const std::filesystem::path& directory, std::uint64_t seed) {
    std::map<std::int32_t, std::uint64_t> count, seen;
    for (const ImageEntry& image : split.training.images) ++count[image.label];
    const std::vector<ImageEntry> all = std::move(split.training.images);
    split.training.images.clear();
    split.validation = split.training;
    for (const ImageEntry& image : all) {
        const std::uint64_t of_class = count[image.label];
        const std::uint64_t place =
            shuffled(seen[image.label]++, of_class, {.seed = seed, .epoch = of_held_out});
        (place < of_class / held_out_part ? split.validation : split.training).images.push_back(image);
    }
    split.held_out = true;
    if (split.validation.images.empty())
        throw UserError(fmt::format(
            "{}: validation takes a tenth of each class, but none has {} images; give more, or a folder "
            "val/ beside train/",
            directory.string(), held_out_part));
}

}  // namespace

std::string ImageSet::name(std::uint64_t index) const {
    const ImageEntry& image = images.at(index);
    return records ? fmt::format("{}, record {}", files[image.file], image.record) : files[image.file];
}

std::string ImageSet::description() const {
    Checksum checksum;
    const auto add = [&](const std::string& text) {
        checksum.add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    };
    for (const std::string& name : classes) add(name);
    for (const ImageEntry& image : images) {
        if (!records) add(std::filesystem::path(files[image.file]).filename().string());
        checksum.add(std::as_bytes(std::span(&image.record, 1)));
        checksum.add(std::as_bytes(std::span(&image.label, 1)));
    }
    if (records)
        for (const MappedFile& file : *records) checksum.add(file.bytes());
    return fmt::format("{} pictures of {} classes, checksum {}", count(), classes.size(),
                       checksum_text(checksum.value()));
}

std::string ImageSet::contents() const {
    if (records) return "";
    Checksum checksum;
    std::uintmax_t total = 0;
    for (const ImageEntry& image : images) {
        std::error_code unknown;
        const std::uintmax_t size = std::filesystem::file_size(files[image.file], unknown);
        checksum.add(std::as_bytes(std::span(&size, 1)));
        if (!unknown) total += size;
    }
    for (std::uint64_t i = 0, some = std::min(count(), compared_images); i < some; ++i) {
        try {
            checksum.add(MappedFile(files[images[i * count() / some].file]).bytes());
        } catch (const UserError&) {
            // A file that cannot be read is refused, or skipped, where it is trained on.
        }
    }
    return fmt::format("{} bytes, checksum {}", total, checksum_text(checksum.value()));
}

Image read_image(const ImageSet& set, std::uint64_t index, std::int64_t enough) {
    const ImageEntry& image = set.images.at(index);
    if (set.records) return cifar10_image((*set.records)[image.file].bytes(), image.record);
    const std::string& file = set.files[image.file];
    const std::string bytes = read_file(file);
    return decode_image(std::as_bytes(std::span(bytes)), file, enough);
}

ImageSplit open_images(const std::filesystem::path& directory, const ImageSplitOptions& options) {
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error))
        throw UserError(
            fmt::format("{}: {}; a folder of images was expected", directory.string(),
                        std::filesystem::exists(directory, error) ? "is no folder" : "does not exist"));
    ImageSplit split = holds_cifar10(directory) ? open_cifar10(directory) : open_folders(directory);
    if (options.hold_out && split.validation.images.empty()) hold_out(split, directory, options.seed);
    return split;
}

}  // namespace mantissa
