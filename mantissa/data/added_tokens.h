// Tokens that are found in a text before it is cut, as Hugging Face's added tokens: where, and how much of
// the white space around them they take. Internal to data/tokenizer*.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

class AddedTokens {
  public:
    /// Finds each token by the text beside it. The tokens must outlive this.
    explicit AddedTokens(std::vector<std::pair<std::string, const SpecialToken*>> tokens);
    AddedTokens() = default;

    bool empty() const { return tokens_.empty(); }

    struct Found {
        std::size_t begin = std::string_view::npos, end = begin;
        const SpecialToken* token = nullptr;
    };
    /// Asked of a token whose text lies at begin ... end - 1.
    using Wanted = FunctionRef<bool(const SpecialToken& token, std::size_t begin, std::size_t end)>;
    /// Calls `plain` for what lies between the wanted tokens and `token` for them, in order, with the white
    /// space that they take along. Of several at a place the longest counts.
    void for_each(std::string_view text, Wanted wanted, FunctionRef<void(std::string_view)> plain,
                  FunctionRef<void(const Found&)> token) const;

  private:
    Found next(std::string_view text, std::size_t from, Wanted wanted) const;

    std::vector<std::pair<std::string, const SpecialToken*>> tokens_;  // in order of the texts
    std::array<bool, 256> begins_{};
    int first_bytes_ = 0;  // how many of these are true
};

}  // namespace mantissa
