// The way from a text to the pieces that BPE merges within: changes of the text, then cuts, as in
// tokenizer.json (normalizer and pre_tokenizer). Also the places where a text may be cut beforehand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/expected.h"
#include "mantissa/data/text_pattern.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

/// SentencePiece's table of replacements of characters and clusters (`precompiled_charsmap`), applied as in
/// Hugging Face's tokenizers.
class CharacterMap {
  public:
    /// Parses the table: the size of a trie in bytes, the trie, and texts, each with a zero byte at its end.
    /// The trie is a double array (darts-clone) of 32-bit units with an offset and a label.
    static Expected<CharacterMap> of_bytes(std::string_view bytes);

    /// Writes the changed text to `changed`; if nothing changes, returns false and leaves it untouched.
    bool apply(std::string_view text, std::string& changed) const;

    bool operator==(const CharacterMap& other) const;

  private:
    struct Table {
        std::vector<std::uint32_t> units;
        std::string texts;
        bool operator==(const Table&) const = default;
    };
    explicit CharacterMap(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
    std::optional<std::string_view> find(std::string_view cluster) const;

    std::shared_ptr<const Table> table_;
};

/// One change of a text.
struct NormalizeStep {
    enum class Kind : std::uint8_t {
        normal_form,
        replace,        ///< each match of `pattern` becomes `content`
        prepend,        ///< `content` before a text that is not empty
        strip,          ///< white space at the ends
        characters,     ///< by `map`
        visible_spaces  ///< U+2581 becomes U+0020, which means it from then on
    };
    Kind kind;
    NormalForm form = NormalForm::nfc;
    std::optional<TextPattern> pattern = {};
    std::optional<CharacterMap> map = {};
    std::string content = {};
    bool at_start = false, at_end = false;  // of strip
    bool operator==(const NormalizeStep&) const = default;
};

/// Whether a space is added before a text.
enum class PrefixSpace : std::uint8_t {
    never,
    unless_there,          ///< if it does not begin with one; after a special token, too
    unless_there_at_start  ///< likewise, but not after a special token
};

/// A cut of every piece into smaller ones, at the matches of a pattern.
struct CutStep {
    enum class Behavior : std::uint8_t {
        isolated,              ///< each match is a piece
        removed,               ///< matches are dropped
        merged_with_previous,  ///< a match joins the text before it
        merged_with_next,      ///< a match joins the text after it
        contiguous             ///< adjacent matches form one piece
    };
    std::optional<TextPattern> pattern = {};  // none: a piece stays whole
    Behavior behavior = Behavior::isolated;
    bool inverted = false;                          ///< the gaps between matches count as matches
    bool visible_spaces = false;                    ///< first U+2581 becomes U+0020, as in NormalizeStep
    PrefixSpace prefix_space = PrefixSpace::never;  ///< then this
    bool operator==(const CutStep&) const = default;
};

struct TextPipeline {
    std::vector<NormalizeStep> changes = {};
    std::vector<CutStep> cuts = {};
    bool operator==(const TextPipeline&) const = default;

    /// GPT-2's pipeline.
    static TextPipeline gpt2() { return {.cuts = {{.pattern = gpt2_pattern()}}}; }
};

/// Whether a text begins here, which decides about added prefixes.
enum class TextPlace : std::uint8_t { at_start, behind_special, continues };

/// The changed text: the text itself, or the contents of `changed`.
std::string_view normalize(const TextPipeline& pipeline, std::string_view text, TextPlace place,
                           std::string& changed);

/// U+2581, which means a space in SentencePiece's vocabularies.
inline constexpr std::string_view visible_space = "\xE2\x96\x81";

/// The text with U+0020 for U+2581: the text itself, or the contents of `changed`.
std::string_view with_plain_spaces(std::string_view text, std::string& changed);

/// Calls `piece(text)` for the pieces of one step, in order.
template <class Piece>
void for_each_piece(const CutStep& step, std::string_view text, Piece&& piece) {
    using enum CutStep::Behavior;
    const TextPattern& pattern = *step.pattern;
    if (step.behavior == isolated) {
        for (std::size_t at = 0; at < text.size();) {
            const TextPattern::Match match = pattern.find(text, at);
            if (match.begin > at) piece(text.substr(at, match.begin - at));
            if (match.end > match.begin) piece(text.substr(match.begin, match.end - match.begin));
            at = match.end;
        }
        return;
    }
    std::size_t begin = 0;  // of the open piece
    bool pending = false, last_matched = false;
    const auto segment = [&](std::size_t from, std::size_t to, bool matched) {
        matched = matched != step.inverted;
        const bool joins = pending && ((step.behavior == contiguous && matched == last_matched) ||
                                       (step.behavior == merged_with_previous && matched && !last_matched) ||
                                       (step.behavior == merged_with_next && !matched && last_matched));
        if (!joins) {
            if (pending && !(step.behavior == removed && last_matched))
                piece(text.substr(begin, from - begin));
            begin = from;
        }
        pending = to > from;
        last_matched = matched;
    };
    for (std::size_t at = 0; at < text.size();) {
        const TextPattern::Match match = pattern.find(text, at);
        if (match.begin > at) segment(at, match.begin, false);
        if (match.end > match.begin) segment(match.begin, match.end, true);
        at = match.end;
    }
    if (pending && !(step.behavior == removed && last_matched)) piece(text.substr(begin));
}

/// Places where a text may be cut: both parts, the second as one that `continues`, give the pieces of the
/// whole. These are before white space after a letter, number or other mark, where certain.
class SafeCuts {
  public:
    explicit SafeCuts(const TextPipeline& pipeline);

    /// Excludes places inside a token that is found in texts; also places after it, if it includes the white
    /// space there or a prefix is added to the following text.
    void leave_whole(std::string_view token, bool takes_spaces_behind, const TextPipeline& pipeline);
    /// The first safe place at or after max(`wanted`, 1); the text's end if there is none.
    std::size_t next(std::string_view text, std::size_t wanted) const;

  private:
    static constexpr std::array<char, 4> white = {' ', '\n', '\t', '\r'};
    bool before(CharacterClass kind, char character, const TextPipeline& pipeline) const;

    std::array<std::array<bool, 128>, 4> safe_{};  // [class of the character before, character]
    bool visible_spaces_ = false;
};

}  // namespace mantissa
