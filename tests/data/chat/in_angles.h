// Special tokens as templates mostly write them.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/data/chat/chat_targets.h"

namespace mantissa::testing {

/// Finds the first special token, as a tokenizer would whose special tokens stand in angles.
inline std::optional<TextRange> in_angles(std::string_view text) {
    const std::size_t begin = text.find('<'), end = text.find('>', begin);
    if (end == std::string_view::npos) return {};
    return TextRange{begin, end + 1};
}

}  // namespace mantissa::testing
