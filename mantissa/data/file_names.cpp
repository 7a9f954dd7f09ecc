#include "mantissa/data/file_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

/// The folder that holds both.
fs::path common_folder(const fs::path& a, const fs::path& b) {
    fs::path common;
    const auto ends = std::ranges::mismatch(a, b);
    for (auto part = a.begin(); part != ends.in1; ++part) common /= *part;
    return common;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
    return path.is_absolute() == folder.is_absolute() &&
           std::ranges::mismatch(folder, path).in1 == folder.end();
}

/// Where several files lie: folders, and files that are alone in theirs.
std::vector<fs::path> places_of(const std::vector<fs::path>& files) {
    std::vector<fs::path> places;
    for (const fs::path& file : files) {
        const fs::path folder = file.parent_path();
        if (std::ranges::any_of(places, [&](const fs::path& place) { return lies_in(folder, place); }))
            continue;
        const auto beside =
            std::ranges::count(files, folder, [](const fs::path& one) { return one.parent_path(); });
        if (beside > 1) std::erase_if(places, [&](const fs::path& place) { return lies_in(place, folder); });
        places.push_back(beside > 1 ? folder : file);
    }
    return places;
}

}  // namespace

std::string name_of(const std::vector<fs::path>& files) {
    std::vector<std::string> names;
    if (files.size() <= 3) {
        for (const fs::path& file : files) names.push_back(file.string());
        return fmt::format("{}", fmt::join(names, ", "));
    }
    std::vector<fs::path> places = places_of(files);
    if (places.size() > 3) {
        fs::path common = places[0];
        for (const fs::path& place : places) common = common_folder(common, place);
        if (common.has_relative_path()) places = {common};
    }
    for (const fs::path& place : places) names.push_back(place.empty() ? "." : place.string());
    if (names.size() == 1) return fmt::format("{} ({} files)", names[0], files.size());
    std::string last = names.size() > 3 ? fmt::format("{} other places", names.size() - 2) : names.back();
    names.resize(names.size() > 3 ? 2 : names.size() - 1);
    return fmt::format("{} files of {} and {}", files.size(), fmt::join(names, ", "), last);
}

}  // namespace mantissa
