#include "mantissa/base/name_pattern.h"

#include <cstddef>

namespace mantissa::inline v0 {

bool matches(std::string_view pattern, std::string_view name) {
    std::size_t in_pattern = 0, in_name = 0;
    std::size_t star = std::string_view::npos, behind_star = 0;  // the last star, and the end of its text
    while (in_name < name.size()) {
        if (in_pattern < pattern.size() &&
            (pattern[in_pattern] == '?' || pattern[in_pattern] == name[in_name])) {
            ++in_pattern, ++in_name;
        } else if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
            star = in_pattern++;
            behind_star = in_name;
        } else if (star != std::string_view::npos) {
            in_pattern = star + 1;
            in_name = ++behind_star;
        } else {
            return false;
        }
    }
    while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
    return in_pattern == pattern.size();
}

}  // namespace mantissa
