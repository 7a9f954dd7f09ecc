// Chats as tokens, and which of these are learnt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/data/chat/chat_file.h"
#include "mantissa/data/chat/chat_targets.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Tokens that count in the loss of chats.
enum class LossOn : std::uint8_t {
    answers,  ///< answers, each with the token that ends its turn
    all       ///< every token
};

struct EncodedChat {
    std::vector<TokenId> tokens = {};
    std::vector<std::uint8_t> trained = {};  ///< of each token: 1 if it is learnt
    std::vector<std::size_t> ends = {};      ///< behind which tokens an answer ends, ascending
};

/// The template beside a tokenizer: chat_template.jinja, or that of tokenizer_config.json (the one named
/// default, where there are several), with the special tokens of the files. None where there is none. Throws
/// UserError for one that cannot be read.
std::optional<ChatTemplate> chat_template_of(const TokenizerParts& parts);

/// A special token is one where the template writes it. What a user typed stays letters, whatever it spells.
/// A token that is learnt in part counts by its first character.
class ChatEncoder {
  public:
    /// The tokenizer must outlive it.
    explicit ChatEncoder(const Tokenizer& tokenizer, LossOn loss_on = LossOn::answers);

    /// Whether an answer's turn ends by a token.
    bool ends_turns() const { return !ends_.empty(); }
    /// Texts that end an answer's turn: those of the template (ends_of_turns), and the tokens that end a
    /// text.
    const std::vector<std::string>& ends() const { return ends_; }

    /// Throws UserError, beginning with the chat's place, where the template refuses it or there is
    /// none.
    EncodedChat encode(const ChatRecord& chat) const;
    /// The special tokens among ends(), at which an answer that a model writes ends.
    std::vector<TokenId> end_tokens() const;
    /// A conversation with the beginning of an answer behind it, for a model to go on. Throws UserError for
    /// one that ends with an answer, and for a text.
    struct Prompt {
        std::string text;
        std::vector<TokenId> tokens;
    };
    Prompt prompt(const ChatRecord& chat) const;

  private:
    RenderedChat render(const ChatRecord& record, bool generation_prompt) const;
    EncodedChat encode_text(const ChatRecord& record) const;

    const Tokenizer& tokenizer_;
    LossOn loss_on_;
    std::optional<ChatTemplate> template_;
    bool reads_parts_ = false;  // the template, words in parts alone
    std::vector<std::string> ends_, ways_in_;
};

}  // namespace mantissa::inline v0
