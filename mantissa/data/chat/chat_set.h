// The chats that a model trains on, as tokens: read, encoded, and cut or dropped if too long.
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
    std::int64_t longest = 0;  ///< most tokens of a chat
};

struct ChatSet {
    std::vector<TokenId> tokens = {};        // all chats, one after another
    std::vector<std::uint8_t> trained = {};  // per token: 1 if learnt
    std::vector<std::uint64_t> starts = {};  // start of each chat, and the end of the last
    std::vector<std::uint64_t> names = {};   // per chat: a checksum of its tokens
    std::string account = {};                // counts for users, one per line
    std::int64_t longest = 0;

    std::uint64_t chats() const { return names.size(); }
    TokenRange range_of(std::uint64_t chat) const { return {starts[chat], starts[chat + 1]}; }
    /// Tokens of a chat that are targets: the learnt ones, except its first.
    std::uint64_t targets_of(std::uint64_t chat) const;
    /// Puts the chats in this order.
    void reorder(const std::vector<std::uint64_t>& order);
};

/// Reads and encodes chats. A chat that is too long ends after its last answer that fits. Chats without a
/// whole answer are dropped. Throws UserError as read_chats and ChatEncoder do, and if no chat has a learnt
/// token.
ChatSet read_chat_set(const ChatSetOptions& options, const Tokenizer& tokenizer, ThreadPool& pool);

/// Consecutive tokens that are all learnt, or all not; a chat's first token is never learnt.
struct ChatPart {
    std::vector<TokenId> tokens = {};
    std::string text = {};
    bool learnt = false;
};
std::vector<ChatPart> parts_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                               std::span<const std::uint8_t> trained);

}  // namespace mantissa::inline v0
