#include "mantissa/data/image_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

constexpr const char* expected =
    "expected a folder a class with .jpg, .jpeg or .png files, such folders in train/ and val/, or "
    "CIFAR-10's data_batch_1.bin";

std::string lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

/// Images of the class folders in `directory`, labelled by index into `classes`.
ImageSet set_of(const fs::path& directory, std::vector<std::string> classes, LeftOut& left_out) {
    ImageSet set{.classes = std::move(classes), .folder = directory.string()};
    for (std::size_t label = 0; label < set.classes.size(); ++label) {
        const fs::path folder = directory / set.classes[label];
        if (!fs::is_directory(folder)) continue;
        for (const fs::path& file : left_out.images_below(folder)) {
            set.images.push_back(
                {static_cast<std::uint32_t>(set.files.size()), 0, static_cast<std::int32_t>(label)});
            set.files.push_back(file.string());
        }
    }
    return set;
}

/// The folders with the usual names of splits, in any case.
struct Splits {
    fs::path training, validation;    ///< empty: none
    std::vector<std::string> unused;  ///< the other folders, as "test/"

    /// A class may be called train, too; it contains images and no folders.
    explicit Splits(const fs::path& directory) {
        const auto named = [&](std::initializer_list<std::string_view> names) {
            fs::path found;
            for (const fs::path& folder : contents_of(directory).folders) {
                if (std::ranges::find(names, lower_case(folder.filename().string())) == names.end()) continue;
                if (!found.empty())
                    throw UserError(fmt::format("{}: {}/ and {}/ both stand for the same part; keep one",
                                                directory.string(), found.filename().string(),
                                                folder.filename().string()));
                found = folder;
            }
            return found;
        };
        const auto holds_classes = [](const fs::path& folder) {
            return !folder.empty() && !contents_of(folder).folders.empty();
        };
        training = named({"train", "training"});
        validation = named({"val", "valid", "validation"});
        if (!holds_classes(training)) {
            if (holds_classes(validation))
                throw UserError(fmt::format("{}: {}/ is there, but no train/ with a folder a class",
                                            directory.string(), validation.filename().string()));
            training = validation = fs::path();
            return;
        }
        if (const fs::path test = named({"test"}); validation.empty() && holds_classes(test))
            validation = test;
        for (const fs::path& folder : contents_of(directory).folders)
            if (folder != training && folder != validation)
                unused.push_back(folder.filename().string() + "/");
    }
};

/// A class name must fit a line of classes.txt in a checkpoint.
void require_one_line(const fs::path& directory, const std::string& name) {
    if (const std::size_t at = name.find('\n'); at != name.npos)
        throw UserError(fmt::format(
            "{}: the name of a class, {}\\n{}, has a line break, which the list of classes in a checkpoint "
            "cannot hold; rename the folder",
            directory.string(), name.substr(0, at), name.substr(at + 1)));
}

/// Throws UserError unless there are two classes, each with an image.
void require_classes(const ImageSet& set, const fs::path& directory) {
    std::vector<bool> has(set.classes.size());
    for (const ImageEntry& image : set.images) has[image.label] = true;
    if (set.images.empty())
        throw UserError(fmt::format("{}: no image is there: {}", directory.string(), expected));
    if (const auto missing = std::find(has.begin(), has.end(), false); missing != has.end())
        throw UserError(fmt::format(
            "{}: a class without an image (.jpg, .jpeg or .png); put some there, or remove the folder",
            (directory / set.classes[missing - has.begin()]).string()));
    if (set.classes.size() < 2)
        throw UserError(fmt::format("{}: only the class {} is there; two are the least to tell apart",
                                    directory.string(), set.classes[0]));
}

ImageSplit read_folders(const fs::path& directory) {
    ImageSplit split;
    const Splits splits(directory);
    LeftOut left_out{.folders = splits.unused, .links = {}};
    const fs::path training = splits.training.empty() ? directory : splits.training;
    const std::vector<std::string> names = left_out.classes_in(training);
    for (const std::string& name : names) require_one_line(training, name);
    split.training = set_of(training, names, left_out);
    require_classes(split.training, training);
    const auto account = [&](const std::string& taken) {
        const std::string others = left_out.text();
        split.account = others.empty() ? taken : fmt::format("{}; left out: {}", taken, others);
        return split;
    };
    if (splits.training.empty()) return account("each folder taken for a class");
    const std::string taken = fmt::format("{}/ taken for training", training.filename().string());
    const fs::path& validation = splits.validation;
    if (validation.empty()) return account(taken);
    const std::vector<std::string>& classes = split.training.classes;
    for (const std::string& name : left_out.classes_in(validation))
        if (!std::ranges::binary_search(classes, name))
            throw UserError(fmt::format(
                "{}: a class that is only there: {} has no folder of that name, so nothing teaches it",
                (validation / name).string(), training.string()));
    split.validation = set_of(validation, classes, left_out);
    if (split.validation.images.empty())
        throw UserError(
            fmt::format("{}: no image is there; put a folder a class, or remove {}/ to have a "
                        "tenth of {}/ held out",
                        validation.string(), validation.filename().string(), training.filename().string()));
    return account(fmt::format("{}, {}/ for validation", taken, validation.filename().string()));
}

}  // namespace

std::vector<std::string> LeftOut::classes_in(const fs::path& directory) {
    const FolderContents contents = contents_of(directory);
    hidden += contents.hidden;
    beside += contents.files.size();
    for (const fs::path& link : contents.dangling) links.push_back(link.string());
    std::vector<std::string> names;
    for (const fs::path& folder : contents.folders) names.push_back(folder.filename().string());
    return names;
}

std::vector<fs::path> LeftOut::images_below(const fs::path& folder) {
    const FolderFiles found = files_below(folder);
    hidden += found.hidden;
    for (const fs::path& link : found.unfollowed) links.push_back(link.string());
    std::vector<fs::path> images;
    for (const fs::path& file : found.files)
        if (is_image_file(file))
            images.push_back(file);
        else
            ++other_files;
    return images;
}

std::string LeftOut::text() const {
    std::vector<std::string> parts;
    const auto count = [&](std::uint64_t number, const char* one, const char* what) {
        if (number > 0) parts.push_back(count_text(number, one) + what);
    };
    if (!folders.empty()) parts.push_back(fmt::format("{}", fmt::join(folders, ", ")));
    count(other_files, "file", " with another ending than .jpg, .jpeg and .png");
    count(beside, "file", " beside the folders of classes");
    count(hidden, "hidden file", hidden == 1 ? " or folder" : " or folders");
    if (!links.empty())
        parts.push_back(fmt::format("links to nothing or to a folder that was read already ({})",
                                    fmt::join(links, ", ")));
    return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_image_file(const fs::path& path) {
    const std::string extension = lower_case(path.extension().string());
    return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

ImageSplit open_folders(const fs::path& directory) {
    try {
        return read_folders(directory);
    } catch (const fs::filesystem_error& error) {
        throw UserError(
            fmt::format("{}: cannot be read: {}", error.path1().string(), error.code().message()));
    }
}

namespace {

namespace fs = std::filesystem;

std::int32_t class_of(const fs::path& file, const std::vector<std::string>& classes) {
    for (fs::path folder = file.parent_path(); !folder.filename().empty(); folder = folder.parent_path()) {
        const auto found = std::ranges::find(classes, folder.filename().string());
        if (found != classes.end()) return static_cast<std::int32_t>(found - classes.begin());
    }
    return unknown_class;
}

std::vector<fs::path> images_in(const fs::path& path, LeftOut& left_out) {
    if (!fs::is_directory(path)) return {path};
    std::vector<fs::path> images = left_out.images_below(path);
    if (images.empty())
        throw UserError(fmt::format("{}: holds no image; expected files that end in .jpg, .jpeg or .png{}",
                                    path.string(),
                                    left_out.text().empty() ? "" : ", found only " + left_out.text()));
    return images;
}

ImageSet cifar10_to_predict(const fs::path& directory, const std::vector<std::string>& classes) {
    ImageSet set = open_cifar10(directory).validation;
    if (set.classes != classes)
        for (ImageEntry& image : set.images) image.label = unknown_class;
    return set;
}

}  // namespace

ImagesToPredict images_to_predict(const std::vector<std::string>& paths,
                                  const std::vector<std::string>& classes) {
    ImageSet set{.classes = classes};
    LeftOut left_out;
    for (const std::string& path : paths) {
        if (!fs::exists(path)) throw UserError(path + ": does not exist");
        if (fs::is_directory(path) && holds_cifar10(path)) {
            if (paths.size() > 1)
                throw UserError(fmt::format("{}: holds CIFAR-10's files; give it alone", path));
            return {cifar10_to_predict(path, classes)};
        }
        for (const fs::path& file : images_in(path, left_out)) {
            set.images.push_back({static_cast<std::uint32_t>(set.files.size()), 0, class_of(file, classes)});
            set.files.push_back(file.string());
        }
    }
    return {std::move(set), left_out.text()};
}

}  // namespace mantissa
