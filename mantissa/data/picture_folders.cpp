#include "mantissa/data/picture_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

constexpr const char* expected =
    "expected a folder a class with .jpg, .jpeg or .png files, such folders in train/ and val/, or "
    "CIFAR-10's "
    "data_batch_1.bin";

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_picture(const fs::path& path) {
    std::string extension = path.extension().string();
    for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// The folders in a folder, sorted by name.
std::vector<fs::path> folders_in(const fs::path& directory) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(directory))
        if (entry.is_directory() && !is_hidden(entry.path())) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    return folders;
}

/// A class may be called train, too; then there are pictures in it and no folders.
bool is_split(const fs::path& directory, const char* name) {
    std::error_code none;
    return fs::is_directory(directory / name, none) && !folders_in(directory / name).empty();
}

/// Where the classes' folders are: their pictures with labels by the names in `classes`.
PictureSet set_of(const fs::path& directory, std::vector<std::string> classes, std::uint64_t& other_files) {
    PictureSet set{.classes = std::move(classes)};
    for (std::size_t label = 0; label < set.classes.size(); ++label) {
        const fs::path folder = directory / set.classes[label];
        std::vector<std::string> files;
        if (fs::is_directory(folder))
            for (const auto& entry : fs::recursive_directory_iterator(folder)) {
                if (!entry.is_regular_file() || is_hidden(entry.path())) continue;
                if (is_picture(entry.path()))
                    files.push_back(entry.path().string());
                else
                    ++other_files;
            }
        std::sort(files.begin(), files.end());
        for (std::string& file : files) {
            set.pictures.push_back(
                {static_cast<std::uint32_t>(set.files.size()), 0, static_cast<std::int32_t>(label)});
            set.files.push_back(std::move(file));
        }
    }
    return set;
}

std::vector<std::string> names_of(const std::vector<fs::path>& folders) {
    std::vector<std::string> names;
    for (const fs::path& folder : folders) names.push_back(folder.filename().string());
    return names;
}

/// Every class has a picture, and there are two classes or more.
void require_classes(const PictureSet& set, const fs::path& directory) {
    std::vector<bool> has(set.classes.size());
    for (const PictureEntry& picture : set.pictures) has[static_cast<std::size_t>(picture.label)] = true;
    if (set.pictures.empty())
        throw UserError(fmt::format("{}: no picture is there: {}", directory.string(), expected));
    if (const auto missing = std::find(has.begin(), has.end(), false); missing != has.end())
        throw UserError(fmt::format(
            "{}: a class without a picture (.jpg, .jpeg or .png); put some there, or remove the folder",
            (directory / set.classes[static_cast<std::size_t>(missing - has.begin())]).string()));
    if (set.classes.size() < 2)
        throw UserError(fmt::format("{}: only the class {} is there; two are the least to tell apart",
                                    directory.string(), set.classes[0]));
}

PictureSplit read_folders(const fs::path& directory) {
    PictureSplit split;
    const bool in_train = is_split(directory, "train");
    const fs::path training = in_train ? directory / "train" : directory;
    if (!in_train && is_split(directory, "val"))
        throw UserError(
            fmt::format("{}: val/ is there, but no train/ with a folder a class", directory.string()));
    split.training = set_of(training, names_of(folders_in(training)), split.other_files);
    require_classes(split.training, training);
    const fs::path validation = directory / "val";
    if (!in_train || !fs::is_directory(validation)) return split;
    const std::vector<std::string>& classes = split.training.classes;
    for (const fs::path& folder : folders_in(validation))
        if (!std::ranges::binary_search(classes, folder.filename().string()))
            throw UserError(fmt::format(
                "{}: a class that is only there: {} has no folder of that name, so nothing teaches it",
                folder.string(), training.string()));
    split.validation = set_of(validation, classes, split.other_files);
    if (split.validation.pictures.empty())
        throw UserError(
            fmt::format("{}: no picture is there; put a folder a class, or remove val/ to have a "
                        "tenth of train/ held out",
                        validation.string()));
    return split;
}

}  // namespace

PictureSplit open_folders(const fs::path& directory) {
    try {
        return read_folders(directory);
    } catch (const fs::filesystem_error& error) {
        throw UserError(
            fmt::format("{}: cannot be read: {}", error.path1().string(), error.code().message()));
    }
}

}  // namespace mantissa
