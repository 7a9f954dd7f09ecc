// Parts of a tokenizer from the entries of a vocabulary file. Internal to data/tokenizer*.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mantissa/data/tokenizer.h"
#include "mantissa/data/tokenizer_files.h"

namespace mantissa::inline v0 {

/// Spellings and ids of a file, and merges given by spelling.
class SpelledVocabulary {
  public:
    explicit SpelledVocabulary(std::string source) : source_(std::move(source)) {}

    /// Adds all entries of a JSON object of spellings and ids. Throws UserError, naming it `what`, for any
    /// other value.
    void add_all(const nlohmann::json& entries, const std::string& what);
    /// Adds the token with the next id, for files that list tokens in order. Throws UserError if it exists.
    void add_next(const std::string& spelling);
    /// Marks a token as found in texts; adds it if needed. Throws UserError if its spelling has another id.
    void add_special(const SpecialToken& token);
    /// Adds the next merge in order of rank; `where` names it ("line 7"). Throws UserError if a part or the
    /// result is not a token.
    void add_merge(std::string_view left, std::string_view right, const std::string& where);

    /// The spelling of a file's ordinary tokens, and the conditions on them.
    enum class Spelling : std::uint8_t {
        pair,   ///< in the byte-level alphabet; each is a byte, some merge's result or, in angle brackets,
                ///< special
        bytes,  ///< in that alphabet; merges need not make each
        text,   ///< as text, with U+2581 for a space
        text_and_bytes  ///< as text, and <0x00> to <0xFF> for bytes
    };
    /// Checks that ids run from 0 without a gap and that tokens fit their spelling.
    TokenizerParts finish(Spelling spelling = Spelling::pair) &&;

  private:
    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };

    [[noreturn]] void fail(const std::string& what) const;
    void add(const std::string& spelling, std::uint64_t id);
    TokenId require(std::string_view spelling, const std::string& where) const;
    std::vector<const std::string*> spellings_by_id() const;
    std::string bytes_of_token(std::size_t id, const std::string& spelling, bool may_stand_alone) const;
    void read_text(const std::vector<const std::string*>& spellings, const std::vector<bool>& added,
                   Spelling spelled, TokenizerParts& parts) const;

    std::string source_;
    std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> ids_;
    std::vector<Merge> merges_;
    std::vector<SpecialToken> specials_;
};

/// Readers for parse_vocabulary_and_merges, parse_tokenizer_json and parse_tiktoken, which make their
/// tokenizers from the parts.
TokenizerParts read_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges);
TokenizerParts read_tokenizer_json(const NamedText& json);
TokenizerParts read_tiktoken(const NamedText& ranks);

/// The decoded text of a token that is found in texts, by the spelling of ordinary tokens.
std::string decoded_added_token(std::string_view text, SpelledVocabulary::Spelling spelling);

/// A piece of a file for an error: quoted, cut after 40 bytes, with control characters and invalid UTF-8
/// escaped.
std::string quoted_excerpt(std::string_view text);

}  // namespace mantissa
