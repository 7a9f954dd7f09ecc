// Counts as people read them.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// "1 step", "2 steps". `many` is the word for more than one where an s behind `one` is not: "batches".
std::string count_text(std::integral auto count, std::string_view one, std::string_view many = {}) {
    std::string text = std::to_string(count) + " ";
    if (count == 1) return text.append(one);
    return many.empty() ? text.append(one) + "s" : text.append(many);
}

}  // namespace mantissa
