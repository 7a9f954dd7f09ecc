// Decoding of base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// RFC 4648 section 4, with padding and unused bits zero. None for other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace mantissa
