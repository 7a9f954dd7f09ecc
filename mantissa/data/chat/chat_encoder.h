// Chats as tokens, and which of the tokens are learnt.
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
    std::vector<std::uint8_t> trained = {};  ///< per token: 1 if learnt
    std::vector<std::size_t> ends = {};      ///< token counts at which answers end, ascending
};

/// The template beside a tokenizer: chat_template.jinja, or the one in tokenizer_config.json (named default,
/// if there are several), with the special tokens of the files; none if there is no template. Throws
/// UserError for an unreadable one.
std::optional<ChatTemplate> chat_template_of(const TokenizerParts& parts);

/// Encodes chats. A special token counts only where the template writes it; a user's text stays letters,
/// whatever it spells. A token that is learnt in part counts by its first character.
class ChatEncoder {
  public:
    /// The tokenizer must outlive it.
    explicit ChatEncoder(const Tokenizer& tokenizer, LossOn loss_on = LossOn::answers);

    /// Whether answers' turns end with known texts.
    bool ends_turns() const { return !ends_.empty(); }
    /// Texts that end an answer's turn: from the template (ends_of_turns), and the tokens that end a text.
    const std::vector<std::string>& ends() const { return ends_; }

    /// Throws UserError, beginning with the chat's place, if the template refuses it, or there is no
    /// template.
    EncodedChat encode(const ChatRecord& chat) const;
    /// The special tokens among ends(); one of them ends a generated answer.
    std::vector<TokenId> end_tokens() const;
    /// A conversation followed by the beginning of an answer, for a model to continue. Throws UserError for a
    /// conversation that ends with an answer, and for a text.
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
    bool reads_parts_ = false;  // the template reads only lists of parts
    std::vector<std::string> ends_, ways_in_;
};

}  // namespace mantissa::inline v0
