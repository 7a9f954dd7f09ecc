#include "mantissa/base/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace mantissa::inline v0 {

std::string names_text(std::span<const std::string> names, std::size_t most) {
    const std::size_t shown = std::min(names.size(), most);
    const std::string text = fmt::format("{}", fmt::join(names.first(shown), ", "));
    return shown < names.size() ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

std::string printable(std::string_view text) {
    std::string shown;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
            shown += fmt::format("\\x{:02x}", next);
            ++i;
        } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
            shown += fmt::format("\\x{:02x}", byte);
        } else {
            shown += text[i];
        }
    }
    return shown;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
    std::string out, line;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
        const std::string_view word = text.substr(at, end - at);
        if (!line.empty() && indent + line.size() + 1 + word.size() > columns) {
            out += line + "\n" + std::string(indent, ' ');
            line.clear();
        }
        if (!word.empty()) line.append(line.empty() ? "" : " ").append(word);
        at = end + 1;
    }
    return out + line;
}

}  // namespace mantissa
