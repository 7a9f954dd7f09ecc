#include "mantissa/data/image_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/image_folders.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

/// Most images that contents() reads: a fraction of a second.
constexpr std::uint64_t compared_images = 256;

/// Separates this choice from the orders of epochs, which count from 0.
constexpr std::uint64_t of_held_out = ~std::uint64_t{0};

/// Whether each image of a set is for validation, by its index.
using Chosen = std::vector<bool>;

/// A tenth by name; a class keeps at least its last image by hash.
Chosen chosen_by_name(const ImageSet& set) {
    Chosen chosen(set.images.size());
    struct Last {
        std::uint64_t index = 0, place = 0;
    };
    std::vector<std::optional<Last>> last(set.classes.size());
    for (std::uint64_t i = 0; i < set.count(); ++i) {
        const std::uint64_t place = place_by_name(set.name_in_folder(i));
        chosen[i] = is_held_out(place);
        std::optional<Last>& of_class = last[static_cast<std::size_t>(set.images[i].label)];
        if (!of_class || place > of_class->place) of_class = {i, place};
    }
    for (const auto& of_class : last)
        if (of_class) chosen[of_class->index] = false;
    return chosen;
}

/// A tenth of each class, rounded down.
Chosen chosen_by_seed(const ImageSet& set, std::uint64_t seed) {
    constexpr std::uint64_t one_of = 10;
    std::map<std::int32_t, std::uint64_t> count, seen;
    for (const ImageEntry& image : set.images) ++count[image.label];
    Chosen chosen;
    for (const ImageEntry& image : set.images) {
        const std::uint64_t of_class = count[image.label];
        chosen.push_back(shuffled(seen[image.label]++, of_class, {.seed = seed, .epoch = of_held_out}) <
                         of_class / one_of);
    }
    return chosen;
}

/// Moves the chosen images to the validation set.
void hold_out(ImageSplit& split, const std::filesystem::path& directory, const Chosen& chosen) {
    const std::vector<ImageEntry> all = std::move(split.training.images);
    split.training.images.clear();
    split.validation = split.training;
    for (std::size_t i = 0; i < all.size(); ++i)
        (chosen[i] ? split.validation : split.training).images.push_back(all[i]);
    split.held_out = true;
    if (split.validation.images.empty())
        throw UserError(fmt::format(
            "{}: validation takes about a tenth of the images, chosen by their names, and of {} it takes "
            "none; give more, or a folder val/ beside train/",
            directory.string(), count_text(all.size(), "image")));
}

/// Names the classes without an image in validation.
void name_unvalidated_classes(ImageSplit& split) {
    std::vector<bool> has(split.validation.classes.size());
    for (const ImageEntry& image : split.validation.images) has[static_cast<std::size_t>(image.label)] = true;
    std::vector<std::string> without;
    for (std::size_t label = 0; label < has.size(); ++label)
        if (!has[label]) without.push_back(split.validation.classes[label]);
    if (!without.empty())
        split.account += fmt::format("; not validated, for want of an image: {}", names_text(without));
}

}  // namespace

std::string ImageSet::name(std::uint64_t index) const {
    const ImageEntry& image = images.at(index);
    return records ? fmt::format("{}, record {}", files[image.file], image.record) : files[image.file];
}

std::string ImageSet::name_in_folder(std::uint64_t index) const {
    const std::string whole = name(index);
    return whole.substr(std::min(whole.find_first_not_of('/', folder.size()), whole.size()));
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
            // Training refuses or skips files that cannot be read.
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
    if (split.validation.images.empty() && options.hold_out != HoldOut::nothing)
        hold_out(split, directory,
                 options.hold_out == HoldOut::by_name ? chosen_by_name(split.training)
                                                      : chosen_by_seed(split.training, options.seed));
    if (!split.validation.images.empty()) name_unvalidated_classes(split);
    return split;
}

}  // namespace mantissa
