// Splits text into the pieces that BPE merges within, as GPT-2's tokenizer does, or LLaMA 3's, or at spaces.
//
// The rules, as the regular expressions that GPT-2 (openai/gpt-2, src/encoder.py) and LLaMA 3 published:
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
//         \s*[\r\n]+|\s+(?!\S)|\s+
// written out by hand here: one pass, no backtracking, linear in the text. Bytes that are not UTF-8 count as
// characters that are neither letter, number nor space, so that every byte lands in some piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mantissa::inline v0 {

enum class Split : std::uint8_t {
    gpt2,
    llama3,
    before_each_space,  ///< of U+0020
    before_spaces,      ///< before one or more of them in a row
    nowhere             ///< the whole text is a piece
};

/// Where the piece that begins at `begin` < text.size() ends.
std::size_t piece_end(std::string_view text, std::size_t begin, Split split = Split::gpt2);

/// The first place at or after `wanted` where the text may be cut so that splitting both parts gives the
/// pieces of the whole: before white space that follows something else, a letter or a number by LLaMA 3's
/// rule. The end of the text if there is none.
std::size_t safe_cut(std::string_view text, std::size_t wanted, Split split = Split::gpt2);

}  // namespace mantissa
