#include "mantissa/data/images_to_predict.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/folder_files.h"
#include "mantissa/data/image_folders.h"

namespace mantissa::inline v0 {

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
