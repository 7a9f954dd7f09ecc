// From the entries of a vocabulary file to the parts of a tokenizer. Internal to data/tokenizer*.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa {

/// Spellings and their ids as they stand in a file, and merges given by spelling.
class SpelledVocabulary {
  public:
    /// No id may reach this: a file with one huge id must not cost its memory.
    static constexpr std::uint64_t id_limit = std::uint64_t{1} << 24;

    explicit SpelledVocabulary(std::string source) : source_(std::move(source)) {}

    /// Throws UserError if the id is taken or too large.
    void add(std::string spelling, std::uint64_t id);
    /// Marks a token as special, adding it if need be. Throws UserError if its spelling has another id.
    void add_special(const std::string& text, std::uint64_t id);
    /// The next merge in order of rank; `where` names it ("line 7"). Throws UserError if a part or the result
    /// is no token.
    void add_merge(std::string_view left, std::string_view right, const std::string& where);

    /// Checks that ids have no gap and that each ordinary token is a byte or some merge's result. What is
    /// neither and stands in angle brackets is special.
    TokenizerParts finish() &&;

  private:
    [[noreturn]] void fail(const std::string& what) const;
    TokenId require(std::string_view spelling, const std::string& where) const;

    std::string source_;
    std::unordered_map<std::string, TokenId> ids_;
    std::unordered_map<TokenId, std::string> spellings_;
    std::unordered_map<TokenId, std::string> specials_;
    std::vector<Merge> merges_;
    std::vector<TokenId> specials_in_order_;
};

/// A piece of a file for an error message: cut after 40 bytes, in quotes, control characters and invalid UTF-8
/// escaped.
std::string quoted_excerpt(std::string_view text);

}  // namespace mantissa
