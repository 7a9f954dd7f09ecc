// Splits text into the pieces that byte-level BPE merges within, as GPT-2's tokenizer does.
//
// The rule, as the regular expression that GPT-2 published (openai/gpt-2, src/encoder.py):
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// written out by hand here: one pass, no backtracking, linear in the text. Bytes that are not UTF-8 count as
// characters that are neither letter, number nor space, so that every byte lands in some piece.
#pragma once

#include <cstddef>
#include <string_view>

namespace mantissa::inline v0 {

/// Where the piece that begins at `begin` < text.size() ends.
std::size_t piece_end(std::string_view text, std::size_t begin);

/// The first place at or after `wanted` where the text may be cut so that splitting both parts gives the
/// pieces of the whole: before white space that follows something else. The end of the text if there is none.
std::size_t safe_cut(std::string_view text, std::size_t wanted);

}  // namespace mantissa
