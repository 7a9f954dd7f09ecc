// The spelling of bytes in token files: one printable character per byte (openai/gpt-2, src/encoder.py), or
// base64.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// The 256 bytes in GPT-2's order: printable ones in Latin-1, then the rest.
std::array<std::uint8_t, 256> bytes_in_token_order();

/// The spelling of bytes, in UTF-8: a space becomes U+0120.
std::string spell_bytes(std::string_view bytes);

/// The bytes of a spelling; none if a character spells no byte.
std::optional<std::string> read_spelling(std::string_view spelling);

/// RFC 4648 section 4, with padding and unused bits zero. None for other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace mantissa
