#include "mantissa/data/base64.h"

#include <cstdint>

namespace mantissa::inline v0 {

namespace {

int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return std::nullopt;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    std::string bytes;
    for (std::size_t at = 0; at < text.size(); at += 4) {
        const std::size_t digits = at + 4 == text.size() ? 4 - padding : 4;
        std::uint32_t group = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            const int value = i < digits ? base64_value(text[at + i]) : 0;
            if (value < 0) return std::nullopt;
            group = group << 6 | static_cast<std::uint32_t>(value);
        }
        for (std::size_t i = 0; i + 1 < digits; ++i) bytes += static_cast<char>(group >> (16 - 8 * i));
        if (digits < 4 && (group & (digits == 3 ? 0xFFU : 0xFFFFU)) != 0) return std::nullopt;
    }
    return bytes;
}

}  // namespace mantissa
