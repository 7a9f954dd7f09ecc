#include "mantissa/base/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

/// `entered`: the folders, without links, that were looked into.
void add_files(const fs::path& folder, std::set<fs::path>& entered, FolderFiles& found) {
    std::error_code error;
    if (!entered.insert(fs::canonical(folder, error)).second) {
        found.unfollowed.push_back(folder);
        return;
    }
    FolderContents contents = contents_of(folder);
    found.hidden += contents.hidden;
    found.files.insert(found.files.end(), contents.files.begin(), contents.files.end());
    found.unfollowed.insert(found.unfollowed.end(), contents.dangling.begin(), contents.dangling.end());
    for (const fs::path& inside : contents.folders) add_files(inside, entered, found);
}

void sort_by_name(std::vector<fs::path>& paths) {
    std::ranges::sort(paths, {}, [](const fs::path& path) { return path.native(); });
}

}  // namespace

FolderFiles files_below(const fs::path& folder) {
    FolderFiles found;
    std::set<fs::path> entered;
    std::error_code error;
    const fs::path whole = fs::canonical(folder, error);
    for (fs::path above = whole.parent_path(); entered.insert(above).second; above = above.parent_path()) {
    }
    add_files(folder, entered, found);
    sort_by_name(found.files);
    return found;
}

FolderContents contents_of(const fs::path& folder) {
    FolderContents contents;
    std::error_code error;
    try {
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
            if (entry.path().filename().native().starts_with('.'))
                ++contents.hidden;
            else if (entry.is_directory(error))
                contents.folders.push_back(entry.path());
            else if (entry.is_regular_file(error))
                contents.files.push_back(entry.path());
            else if (!entry.exists(error))
                contents.dangling.push_back(entry.path());
        }
    } catch (const fs::filesystem_error& failed) {
        throw UserError(fmt::format("{}: cannot be read: {}", folder.string(), failed.code().message()));
    }
    for (auto* each : {&contents.folders, &contents.files, &contents.dangling}) sort_by_name(*each);
    return contents;
}

std::filesystem::path cache_folder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    if (cache && *cache == '/') return std::filesystem::path(cache) / "mantissa";
    const char* const home = std::getenv("HOME");
    if (home && *home == '/') return std::filesystem::path(home) / ".cache" / "mantissa";
    return {};
}

}  // namespace mantissa
