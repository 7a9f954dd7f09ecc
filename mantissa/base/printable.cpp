#include "mantissa/base/printable.h"

#include <fmt/format.h>

namespace mantissa::inline v0 {

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

}  // namespace mantissa
