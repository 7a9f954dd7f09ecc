#include "mantissa/data/tokenizer_alphabet.h"

#include <algorithm>

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

}  // namespace mantissa
