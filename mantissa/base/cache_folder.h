// The folder of this user's caches of mantissa. Its files may be deleted, and are made again.
#pragma once

#include <filesystem>

namespace mantissa::inline v0 {

/// The folder mantissa in $XDG_CACHE_HOME, else in ~/.cache, by the XDG base directory specification: paths
/// that are not absolute do not count. Empty where neither is known.
std::filesystem::path cache_folder();

}  // namespace mantissa
