// Any bytes as a regular expression and a text, cut at the first zero byte: what is read finds matches that
// are in order and not empty, and finds them again from any place up to where they begin.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "mantissa/data/text_pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view all(reinterpret_cast<const char*>(data), size);
    const std::size_t cut = std::min(all.find('\0'), all.size());
    const std::string_view text = all.substr(std::min(cut + 1, all.size()));
    const auto pattern = mantissa::TextPattern::of_expression(all.substr(0, cut));
    if (!pattern) return 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto match = pattern->find(text, at);
        if (match.begin < at || match.end > text.size()) __builtin_trap();
        if (match.begin == match.end && match.begin != text.size()) __builtin_trap();
        if (pattern->find(text, match.begin).end != match.end) __builtin_trap();
        at = match.end;
    }
    return 0;
}
