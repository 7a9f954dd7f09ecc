#include "mantissa/data/chat/chat_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* known_kinds =
    "expected messages, prompt and completion, conversations (from and value), or text";

/// The structure of JSON, without its strings.
struct Outline {
    int depth = 0;                       ///< the most open objects and arrays
    std::string_view long_integer = {};  ///< the first integer outside 64 bits
};

bool is_long_integer(std::string_view number) {
    std::int64_t with_sign = 0;
    std::uint64_t without = 0;
    const char *const first = number.data(), *const last = first + number.size();
    const auto read = number.starts_with('-') ? std::from_chars(first, last, with_sign)
                                              : std::from_chars(first, last, without);
    return read.ec == std::errc::result_out_of_range && read.ptr == last;
}

Outline outline_of(std::string_view json) {
    Outline outline;
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (c == '"') quoted = !quoted;
        if (quoted && c == '\\') ++i;
        if (quoted) continue;
        if (c == '{' || c == '[') outline.depth = std::max(outline.depth, ++depth);
        if (c == '}' || c == ']') --depth;
        if (c != '-' && (c < '0' || c > '9')) continue;
        const std::size_t end = std::min(json.find_first_not_of("0123456789+-.eE", i), json.size());
        const std::string_view number = json.substr(i, end - i);
        if (outline.long_integer.empty() && is_long_integer(number)) outline.long_integer = number;
        i = end - 1;
    }
    return outline;
}

/// Parses JSON; errors give the place. Nesting is limited, since writing JSON recurses.
Json parse(std::string_view text, const std::string& name, bool in_one_line) {
    constexpr int deepest = 100;
    const Outline outline = outline_of(text);
    if (outline.depth > deepest)
        throw UserError(fmt::format("{}: JSON nested more than {} deep", name, deepest));
    if (const std::string_view number = outline.long_integer; !number.empty())
        throw UserError(
            fmt::format("{}: the whole number {}{} is outside 64 bits; write it as a text, in quotes", name,
                        number.substr(0, 30), number.size() > 30 ? "..." : ""));
    try {
        return Json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
        const std::size_t at = std::min(error.byte, text.size());
        const std::string what = error.what();
        const std::size_t reason = what.find(": syntax error ");
        const std::string_view why =
            std::string_view(what).substr(reason == std::string::npos ? 0 : reason + 15);
        const auto line = std::ranges::count(text.substr(0, at), '\n') + 1;
        throw UserError(in_one_line ? fmt::format("{}: not JSON, at character {}: {}", name, at, why)
                                    : fmt::format("{}: line {}: not JSON: {}", name, line, why));
    } catch (const nlohmann::json::out_of_range& error) {
        const std::string what = error.what();
        throw UserError(fmt::format("{}: {}", name, what.substr(what.find("] ") + 2)));
    }
}

std::string type_text(const Json& json) { return json.is_null() ? "null" : json.type_name(); }

/// The members of an object, as '"a", "b"'.
std::string members_text(const Json& json) {
    std::vector<std::string> names;
    for (const auto& [name, value] : json.items()) names.push_back("\"" + name + "\"");
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

bool has(const Json& json, const char* name) { return json.contains(name) && !json[name].is_null(); }

bool is_empty(const Json& json) {
    return json.is_string() ? json.get_ref<const std::string&>().empty() : json.empty();
}

std::optional<ChatsAre> kind_of(const Json& chat) {
    if (chat.is_array() || has(chat, "messages")) return ChatsAre::messages;
    if (has(chat, "conversations")) return ChatsAre::conversations;
    if (has(chat, "prompt") && has(chat, "completion")) return ChatsAre::completions;
    if (has(chat, "text")) return ChatsAre::texts;
    return {};
}

class RecordReader {
  public:
    RecordReader(ChatsAre kind, std::vector<std::string>& unread) : kind_(kind), unread_(unread) {}

    ChatRecord read(const Json& json, std::string place) {
        record_ = {.place = std::move(place)};
        if (!json.is_array() && !json.is_object())
            refuse(fmt::format("expected an object, found {}", type_text(json)));
        if (const auto kind = kind_of(json); !kind)
            refuse(fmt::format("is no chat, its members: {}; {}", members_text(json), known_kinds));
        else if (*kind != kind_)
            refuse(fmt::format("holds {}, the first chat of the file {}; keep kinds in files of their own",
                               name_of(*kind), name_of(kind_)));
        if (json.is_array()) {
            take_messages(json, "the list", 0);
            return record_;
        }
        switch (kind_) {
            case ChatsAre::messages:
                take_messages(json["messages"], "messages", 0);
                break;
            case ChatsAre::conversations:
                take_messages(conversation(json), "conversations", 0);
                break;
            case ChatsAre::completions:
                take_completion(json);
                break;
            case ChatsAre::texts:
                take_text(json["text"], "text", record_.text);
                break;
        }
        take_others(json);
        return record_;
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw UserError(fmt::format("{}: {}", record_.place, why));
    }

    void take_text(const Json& json, const char* name, std::string& to) {
        if (!json.is_string())
            refuse(fmt::format("\"{}\": expected a text, found {}", name, type_text(json)));
        to = json.get<std::string>();
        record_.is_text = true;
    }

    /// A text, possibly given in parts.
    Json content_of(const Json& content, std::size_t place) const {
        if (!content.is_array()) {
            if (content.is_string() || content.is_null()) return content;
            refuse(fmt::format("message {}: \"content\": expected a text, found {}", place + 1,
                               type_text(content)));
        }
        std::string whole;
        for (const Json& part : content) {
            const bool is_text = part.is_object() && part.value("type", Json("text")) == "text" &&
                                 part.contains("text") && part["text"].is_string();
            if (!is_text)
                refuse(
                    fmt::format("message {}: \"content\": only parts of text are read, as {{\"type\": "
                                "\"text\", \"text\": \"...\"}}",
                                place + 1));
            whole += part["text"].get_ref<const std::string&>();
        }
        return whole;
    }

    /// Reads messages; from `first_answer` on they may be answers.
    void take_messages(const Json& given, const char* name, std::int64_t first_answer) {
        if (!given.is_array())
            refuse(fmt::format("\"{}\": expected a list of messages, found {}", name, type_text(given)));
        if (given.empty()) refuse(fmt::format("\"{}\": holds no message", name));
        Json messages = given;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            Json& message = messages[i];
            if (!message.is_object())
                refuse(fmt::format("message {}: expected an object, found {}", i + 1, type_text(message)));
            if (!message.contains("role") || !message["role"].is_string())
                refuse(
                    fmt::format("message {} has no \"role\"; expected {{\"role\": \"user\", \"content\": "
                                "\"...\"}}",
                                i + 1));
            if (message.contains("content")) message["content"] = content_of(message["content"], i);
            const bool says = std::ranges::any_of(
                std::array{"content", "tool_calls", "reasoning_content", "reasoning", "thinking"},
                [&](const char* member) { return has(message, member) && !is_empty(message[member]); });
            const std::string& role = message["role"].get_ref<const std::string&>();
            const bool answers = role == "assistant" || role == "model";
            if (!says && !message.contains("content"))
                refuse(fmt::format("message {} has no \"content\"", i + 1));
            if (!answers) continue;
            if (static_cast<std::int64_t>(i) < first_answer) {
                record_.answers_are_all = false;
                continue;
            }
            record_.answers.push_back(static_cast<std::int64_t>(i));
            record_.has_empty_answer |= !says;
        }
        record_.messages = static_cast<std::int64_t>(messages.size());
        record_.chat.messages = messages.dump();
    }

    void take_completion(const Json& json) {
        const Json &prompt = json["prompt"], &completion = json["completion"];
        if (!prompt.is_array() || !completion.is_array()) {
            take_text(prompt, "prompt", record_.prompt);
            take_text(completion, "completion", record_.text);
            record_.has_empty_answer = record_.text.empty();
            return;
        }
        Json messages = prompt;
        for (const Json& message : completion) messages.push_back(message);
        take_messages(messages, "prompt and completion", static_cast<std::int64_t>(prompt.size()));
    }

    /// ShareGPT's conversation as messages. Some files use its name and hold messages.
    Json conversation(const Json& json) const {
        const Json& given = json["conversations"];
        if (!given.is_array())
            refuse(fmt::format("\"conversations\": expected a list, found {}", type_text(given)));
        Json messages = Json::array();
        if (has(json, "system") && json["system"].is_string() && json["system"] != "")
            messages.push_back({{"role", "system"}, {"content", json["system"]}});
        for (std::size_t i = 0; i < given.size(); ++i) {
            const Json& turn = given[i];
            if (turn.is_object() && turn.contains("role")) {
                messages.push_back(turn);
                continue;
            }
            if (!turn.is_object() || !turn.contains("from") || !turn["from"].is_string())
                refuse(
                    fmt::format("turn {} has no \"from\"; expected {{\"from\": \"human\", \"value\": "
                                "\"...\"}}",
                                i + 1));
            if (!turn.contains("value") || !turn["value"].is_string())
                refuse(fmt::format("turn {}: \"value\": expected a text", i + 1));
            messages.push_back({{"role", role_of(turn["from"], i)}, {"content", turn["value"]}});
        }
        return messages;
    }

    std::string role_of(const Json& from, std::size_t place) const {
        using Names = std::pair<std::string_view, std::string_view>;
        for (const auto& [name, role] : std::initializer_list<Names>{{"human", "user"},
                                                                     {"user", "user"},
                                                                     {"gpt", "assistant"},
                                                                     {"assistant", "assistant"},
                                                                     {"chatgpt", "assistant"},
                                                                     {"model", "assistant"},
                                                                     {"system", "system"},
                                                                     {"tool", "tool"}})
            if (from.get_ref<const std::string&>() == name) return std::string(role);
        refuse(fmt::format("turn {}: \"from\" is {}; expected human, gpt, system or tool", place + 1,
                           from.dump()));
    }

    /// An optional list for templates, given as JSON or as JSON in a text.
    std::string list_of(const Json& json, const char* name) const {
        Json list = json.is_string() && !json.get_ref<const std::string&>().empty()
                        ? parse(json.get_ref<const std::string&>(),
                                fmt::format("{}: \"{}\"", record_.place, name), true)
                        : json;
        if (list.is_null() || list == "") return "";
        if (!list.is_array()) refuse(fmt::format("\"{}\": expected a list, found {}", name, type_text(list)));
        return list.empty() ? "" : list.dump();
    }

    void take_others(const Json& json) {
        for (const auto& [name, value] : json.items()) {
            if (is_of_kind(name)) continue;
            if (record_.is_text) {
                note_unread(name);
            } else if (name == "tools") {
                record_.chat.tools = list_of(value, "tools");
            } else if (name == "documents") {
                record_.chat.documents = list_of(value, "documents");
            } else if (name == "chat_template_kwargs" && value.is_object()) {
                for (const auto& [variable, of] : value.items()) record_.chat.variables[variable] = of.dump();
            } else {
                note_unread(name);
            }
        }
    }
    void note_unread(const std::string& name) {
        if (std::ranges::find(unread_, name) == unread_.end()) unread_.push_back(name);
    }

    /// Whether the kind defines a member of this name.
    bool is_of_kind(std::string_view name) const {
        switch (kind_) {
            case ChatsAre::messages:
                return name == "messages";
            case ChatsAre::conversations:
                return name == "conversations" || name == "system";
            case ChatsAre::completions:
                return name == "prompt" || name == "completion";
            case ChatsAre::texts:
                return name == "text";
        }
        return false;
    }

    ChatsAre kind_;
    std::vector<std::string>& unread_;
    ChatRecord record_;
};

/// Takes chats in order, all of the first one's kind.
class ChatFileReader {
  public:
    void add(const Json& json, std::string place) {
        if (file_.chats.empty()) {
            const auto kind = json.is_object() || json.is_array() ? kind_of(json) : std::nullopt;
            if (!kind)
                throw UserError(json.is_object() ? fmt::format("{}: is no chat, its members: {}; {}", place,
                                                               members_text(json), known_kinds)
                                                 : fmt::format("{}: expected an object, found {}", place,
                                                               type_text(json)));
            file_.kind = *kind;
        }
        file_.chats.push_back(RecordReader(file_.kind, file_.unread).read(json, std::move(place)));
    }
    ChatFile finish(const std::string& name) {
        if (file_.chats.empty()) throw UserError(fmt::format("{}: holds no chat", name));
        return std::move(file_);
    }

  private:
    ChatFile file_;
};

/// Whether the whole text is one JSON value, a list or a value over several lines, and not a value per line.
bool is_one_value(std::string_view text, const std::vector<std::string_view>& lines) {
    const auto is_blank = [](std::string_view line) {
        return line.find_first_not_of(" \t\r") == std::string_view::npos;
    };
    const auto first = std::ranges::find_if_not(lines, is_blank);
    if (first == lines.end()) return false;
    if (Json::accept(*first))
        return first->find_first_not_of(" \t") == first->find('[') &&
               std::all_of(first + 1, lines.end(), is_blank);
    return first->find_first_not_of(" \t") == first->find('[') || Json::accept(text);
}

}  // namespace

std::string_view name_of(ChatsAre kind) {
    static constexpr std::array<std::string_view, 4> names = {"messages", "prompt and completion",
                                                              "conversations", "text"};
    return names.at(static_cast<std::size_t>(kind));
}

ChatFile parse_chats(std::string_view text, const std::string& name) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    ChatFileReader reader;
    const std::vector<std::string_view> lines = lines_of(text);
    if (is_one_value(text, lines)) {
        const Json whole = parse(text, name, false);
        const bool is_chat =
            whole.is_object() || (!whole.empty() && whole[0].is_object() && whole[0].contains("role"));
        if (is_chat) reader.add(whole, name);
        for (std::size_t i = 0; !is_chat && i < whole.size(); ++i)
            reader.add(whole[i], fmt::format("{}: chat {}", name, i + 1));
        return reader.finish(name);
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string place = fmt::format("{}: line {}", name, i + 1);
        reader.add(parse(lines[i], place, true), place);
    }
    return reader.finish(name);
}

bool begins_with_chat(std::string_view text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!line.starts_with('{')) return false;
    const Json chat = Json::parse(line, nullptr, false);
    const auto kind = chat.is_object() ? kind_of(chat) : std::nullopt;
    return kind && *kind != ChatsAre::texts;
}

ChatFile read_chats(const std::filesystem::path& file) {
    const TextFile text(file);
    return parse_chats(text.text(), file == "-" ? "standard input" : file.string());
}

}  // namespace mantissa::inline v0
