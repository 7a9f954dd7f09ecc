// Where this user's caches of mantissa are: what may be deleted and is made again.
#pragma once

#include <filesystem>

namespace mantissa::inline v0 {

/// The folder mantissa in $XDG_CACHE_HOME, else in ~/.cache, by the XDG base directory specification: paths
/// that are not absolute do not count. Empty where neither is known.
std::filesystem::path cache_folder();

}  // namespace mantissa
