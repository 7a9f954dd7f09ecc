// The binary files of CIFAR-10: records of a class byte and 32 x 32 pixels, first red, then green, then blue.
// Krizhevsky, "Learning multiple layers of features from tiny images", 2009; layout:
// https://www.cs.toronto.edu/~kriz/cifar.html.
#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/image_folders.h"
#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_classes = 256;  // the class is a byte

/// One name a line; the published file ends with an empty line. Without the file, classes are numbers.
std::vector<std::string> class_names(const fs::path& directory) {
    constexpr int published = 10;
    const fs::path file = directory / "batches.meta.txt";
    std::vector<std::string> names;
    if (!fs::exists(file)) {
        for (int i = 0; i < published; ++i) names.push_back(std::to_string(i));
        return names;
    }
    const std::string text = read_file(file);
    for (const std::string_view line : lines_of(text))
        if (!line.empty()) names.emplace_back(line);
    if (names.empty() || names.size() > max_classes)
        throw UserError(fmt::format("{}: expected the name of a class a line, 1 to {}, got {}", file.string(),
                                    max_classes, names.size()));
    return names;
}

std::vector<fs::path> batch_files(const fs::path& directory) {
    std::vector<fs::path> files = contents_of(directory).files;
    std::erase_if(files, [](const fs::path& file) {
        const std::string name = file.filename().string();
        return !name.starts_with("data_batch_") || !name.ends_with(".bin");
    });
    return files;
}

/// Throws UserError for a gap in the numbers of files, counted from 1: one was not copied.
void require_no_gap(const fs::path& directory, const std::vector<fs::path>& files) {
    const auto numbered = [&](std::size_t i) { return directory / fmt::format("data_batch_{}.bin", i); };
    std::size_t last = 0;
    for (std::size_t i = 1; i <= 100; ++i)
        if (fs::exists(numbered(i))) last = i;
    for (std::size_t i = 1; i < last; ++i)
        if (!fs::exists(numbered(i)))
            throw UserError(fmt::format(
                "{}: is missing, though {} there, to number {}; copy it, too", numbered(i).string(),
                files.size() == 1 ? "another is" : fmt::format("{} others are", files.size()), last));
}

fs::path test_file(const fs::path& directory) { return directory / "test_batch.bin"; }

void require_records(const fs::path& path, std::size_t bytes) {
    if (bytes == 0 || bytes % cifar10_record_bytes != 0)
        throw UserError(
            fmt::format("{}: {} are no whole number of CIFAR-10's records of {} bytes; the file is cut "
                        "short or of another kind",
                        path.string(), count_text(bytes, "byte"), cifar10_record_bytes));
}

ImageSet set_of(const std::vector<fs::path>& paths, const std::vector<std::string>& classes) {
    ImageSet set{.classes = classes, .folder = paths.front().parent_path().string()};
    std::vector<MappedFile> files;
    for (const fs::path& path : paths) {
        const std::span<const std::byte> bytes = files.emplace_back(path).bytes();
        require_records(path, bytes.size());
        const auto file = static_cast<std::uint32_t>(set.files.size());
        set.files.push_back(path.string());
        for (std::size_t at = 0, record = 0; at < bytes.size(); at += cifar10_record_bytes, ++record) {
            const auto label = std::to_integer<std::uint32_t>(bytes[at]);
            if (label >= classes.size())
                throw UserError(fmt::format("{}, record {}: class {}, but there are {}, from 0 on",
                                            path.string(), record, label, classes.size()));
            set.images.push_back({file, static_cast<std::uint32_t>(record), static_cast<int>(label)});
        }
    }
    set.records = std::make_shared<const std::vector<MappedFile>>(std::move(files));
    return set;
}

}  // namespace

bool holds_cifar10(const fs::path& directory) {
    return fs::exists(test_file(directory)) || !batch_files(directory).empty();
}

ImageSplit open_cifar10(const fs::path& directory) {
    const std::vector<fs::path> batches = batch_files(directory);
    if (batches.empty())
        throw UserError(fmt::format("{}: there is test_batch.bin but no data_batch_1.bin to train on",
                                    directory.string()));
    require_no_gap(directory, batches);
    const std::vector<std::string> classes = class_names(directory);
    ImageSplit split{
        .training = set_of(batches, classes), .validation = {}, .format = ImageSplit::Format::cifar10};
    split.account = fmt::format("{} data_batch_*.bin taken for training", count_text(batches.size(), "file"));
    if (!fs::exists(test_file(directory))) return split;
    split.validation = set_of({test_file(directory)}, classes);
    split.account += ", test_batch.bin for validation";
    return split;
}

Image cifar10_image(std::span<const std::byte> file, std::uint32_t record) {
    constexpr std::size_t plane = cifar10_side * cifar10_side;
    const auto pixels = file.subspan(record * cifar10_record_bytes + 1, 3 * plane);
    Image image{.height = cifar10_side, .width = cifar10_side};
    image.pixels.resize(3 * plane);
    for (std::size_t channel = 0; channel < 3; ++channel)
        for (std::size_t i = 0; i < plane; ++i)
            image.pixels[3 * i + channel] = std::to_integer<std::uint8_t>(pixels[channel * plane + i]);
    return image;
}

}  // namespace mantissa
