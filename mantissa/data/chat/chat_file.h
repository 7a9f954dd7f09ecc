// Files of chats for fine-tuning: a chat a line of JSONL, or an item of a JSON array. The first chat of a
// file tells its kind; all others must be of that kind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/chat/chat_template.h"

namespace mantissa::inline v0 {

enum class ChatsAre : std::uint8_t {
    messages,       ///< `messages`: objects of role and content
    completions,    ///< `prompt` and `completion`: both texts, or both lists of messages
    conversations,  ///< `conversations`: objects of from and value, as in ShareGPT
    texts           ///< `text`, with no template
};
/// "messages", "prompt and completion".
std::string_view name_of(ChatsAre kind);

struct ChatRecord {
    std::string place;  ///< "chats.jsonl: line 7", for messages
    ChatMessages chat = {};
    /// The messages with an answer's role, assistant or model, ascending; of a completion, only its own.
    std::vector<std::int64_t> answers = {};
    bool answers_are_all = true;  ///< else some answers are context, as in a prompt
    std::int64_t messages = 0;
    /// A chat without messages: a text to learn, after a given prompt.
    std::string prompt = {}, text = {};
    bool is_text = false;
    bool has_empty_answer = false;
};

struct ChatFile {
    ChatsAre kind = ChatsAre::messages;
    std::vector<ChatRecord> chats;
    std::vector<std::string> unread;  ///< ignored members, such as "id"
};

/// Throws UserError, "FILE: line N: ...", for invalid JSON, or a chat of another kind.
ChatFile read_chats(const std::filesystem::path& file);
/// Parses a text; errors call it by this name.
ChatFile parse_chats(std::string_view text, const std::string& name);

/// Whether a text's first line is a chat of messages, a completion or a conversation.
bool begins_with_chat(std::string_view text);

}  // namespace mantissa::inline v0
