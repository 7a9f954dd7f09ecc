#include "mantissa/data/tokenizer_alphabet.h"

#include <algorithm>
#include <cstdint>

#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

constexpr bool stands_for_itself(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/// The other bytes get the code points from U+0100 on, in order.
constexpr std::array<char32_t, 256> make_characters() {
    std::array<char32_t, 256> characters{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? byte : next++;
    return characters;
}

constexpr auto characters = make_characters();
constexpr char32_t characters_end = 0x100 + 68;

constexpr std::array<std::int16_t, characters_end> make_bytes() {
    std::array<std::int16_t, characters_end> bytes{};
    for (auto& byte : bytes) byte = -1;
    for (unsigned byte = 0; byte < 256; ++byte) bytes[characters[byte]] = static_cast<std::int16_t>(byte);
    return bytes;
}

constexpr auto bytes_of = make_bytes();

}  // namespace

std::array<std::uint8_t, 256> bytes_in_token_order() {
    std::array<std::uint8_t, 256> order{};
    for (unsigned byte = 0; byte < 256; ++byte) order[byte] = static_cast<std::uint8_t>(byte);
    std::stable_partition(order.begin(), order.end(), stands_for_itself);
    return order;
}

std::string spell_bytes(std::string_view bytes) {
    std::string spelling;
    for (const char c : bytes) {
        const char32_t character = characters[static_cast<unsigned char>(c)];
        if (character < 0x80) {
            spelling += static_cast<char>(character);
        } else {
            spelling += static_cast<char>(0xC0 | (character >> 6));
            spelling += static_cast<char>(0x80 | (character & 0x3F));
        }
    }
    return spelling;
}

std::optional<std::string> read_spelling(std::string_view spelling) {
    std::string bytes;
    for (std::size_t at = 0; at < spelling.size();) {
        const Utf8Step step = decode_utf8(spelling, at);
        if (step.code_point >= characters_end || bytes_of[step.code_point] < 0) return std::nullopt;
        bytes += static_cast<char>(bytes_of[step.code_point]);
        at += step.length;
    }
    return bytes;
}

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
