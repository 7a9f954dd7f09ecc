// Files of chats, as people have them to tune a model on: a chat a line of JSONL, or an item of a JSON array.
// The first chat of a file says its kind; all others must be of that kind.
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
    conversations,  ///< `conversations`: objects of from and value, as ShareGPT's
    texts           ///< `text`, with no template
};
/// "messages", "prompt and completion".
std::string_view name_of(ChatsAre kind);

struct ChatRecord {
    std::string place;  ///< "chats.jsonl: line 7", for messages
    ChatMessages chat = {};
    /// The messages that are answers by their role, assistant or model, ascending: of a completion's only.
    std::vector<std::int64_t> answers = {};
    bool answers_are_all = true;  ///< no answer is given, as some of a prompt are
    std::int64_t messages = 0;
    /// Without messages: a text to be learnt, behind one that is given.
    std::string prompt = {}, text = {};
    bool is_text = false;
    bool has_empty_answer = false;
};

struct ChatFile {
    ChatsAre kind = ChatsAre::messages;
    std::vector<ChatRecord> chats;
    std::vector<std::string> unread;  ///< names of members that say nothing to a template, such as "id"
};

/// Throws UserError, "FILE: line N: ...", for what is no JSON, or no chat of the file's kind.
ChatFile read_chats(const std::filesystem::path& file);
/// The same of a text that was read already, which messages call by this name.
ChatFile parse_chats(std::string_view text, const std::string& name);

/// Whether a text begins with a line that is a chat of messages, a completion or a conversation.
bool begins_with_chat(std::string_view text);

}  // namespace mantissa::inline v0
