// The files below a folder, for every option that takes a folder; and the folder of caches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace mantissa::inline v0 {

struct FolderFiles {
    std::vector<std::filesystem::path> files;  ///< sorted by name
    /// Links to nothing, to a folder above, or to one that was entered already.
    std::vector<std::filesystem::path> unfollowed;
    std::uint64_t hidden = 0;  ///< files and folders that were passed over
};

/// All files in a folder and in the folders inside it. Hidden entries (the name begins with a dot) are passed
/// over, folders with all their files. Links are followed, but no folder is entered twice. Throws UserError
/// that names a folder that cannot be read.
FolderFiles files_below(const std::filesystem::path& folder);

/// The entries of one folder, linked or not, that are not hidden.
struct FolderContents {
    std::vector<std::filesystem::path> folders, files, dangling;  ///< sorted by name; links to nothing apart
    std::uint64_t hidden = 0;
};

/// Throws as above.
FolderContents contents_of(const std::filesystem::path& folder);

/// The folder mantissa in $XDG_CACHE_HOME, else in ~/.cache, by the XDG base directory specification: paths
/// that are not absolute do not count. Empty where neither is known.
std::filesystem::path cache_folder();

}  // namespace mantissa
