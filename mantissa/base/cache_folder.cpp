#include "mantissa/base/cache_folder.h"

#include <cstdlib>

namespace mantissa::inline v0 {

std::filesystem::path cache_folder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    if (cache && *cache == '/') return std::filesystem::path(cache) / "mantissa";
    const char* const home = std::getenv("HOME");
    if (home && *home == '/') return std::filesystem::path(home) / ".cache" / "mantissa";
    return {};
}

}  // namespace mantissa
