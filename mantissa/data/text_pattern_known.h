// GPT-2's, LLaMA 3's and Qwen's expressions written out by hand: one pass, no backtracking, a quarter faster
// than the walk through their trees (text_pattern.cpp), which tests hold them to. Internal to
// data/text_pattern*.
#pragma once

#include <cstddef>
#include <string_view>

#include "mantissa/data/text_pattern.h"

namespace mantissa::inline v0 {

/// The end of the match that begins at a place, as there is one at each.
using PieceEnd = std::size_t (*)(std::string_view text, std::size_t begin);

/// Null for any other expression.
PieceEnd known_piece_end(std::string_view expression, Spaces spaces);

}  // namespace mantissa
