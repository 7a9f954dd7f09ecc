// The chats that a model trains on, as tokens: read, encoded, and cut or left out where they are too long.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/data/chat/chat_encoder.h"
#include "mantissa/data/token_stream.h"

namespace mantissa::inline v0 {

struct ChatSetOptions {
    std::vector<std::filesystem::path> files = {};
    LossOn loss_on = LossOn::answers;
    std::int64_t longest = 0;  ///< tokens of a chat
};

struct ChatSet {
    std::vector<TokenId> tokens = {};        // of all chats, one after another
    std::vector<std::uint8_t> trained = {};  // of each: 1 if it is learnt
    std::vector<std::uint64_t> starts = {};  // of the chats, and the end of all
    std::vector<std::uint64_t> names = {};   // of each, by its tokens: equal chats have equal ones
    std::string account = {};                // for people: counts, a line each
    std::int64_t longest = 0;

    std::uint64_t chats() const { return names.size(); }
    TokenRange range_of(std::uint64_t chat) const { return {starts[chat], starts[chat + 1]}; }
    /// Tokens of a chat that are targets: the learnt ones, but not its first.
    std::uint64_t targets_of(std::uint64_t chat) const;
    /// Puts the chats in this order.
    void reorder(const std::vector<std::uint64_t>& order);
};

/// A chat that is too long ends behind its last answer that fits, or is left out where none does; one without
/// an answer is left out. Throws UserError as read_chats and ChatEncoder do, and if nothing is learnt of any
/// chat.
ChatSet read_chat_set(const ChatSetOptions& options, const Tokenizer& tokenizer, ThreadPool& pool);

/// Tokens in a row that are all learnt, or all not; the first of a chat never is.
struct ChatPart {
    std::vector<TokenId> tokens = {};
    std::string text = {};
    bool learnt = false;
};
std::vector<ChatPart> parts_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                               std::span<const std::uint8_t> trained);

}  // namespace mantissa::inline v0
