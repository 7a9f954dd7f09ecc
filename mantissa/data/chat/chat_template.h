// A model's chat template, the program in Jinja that makes one text of a chat, run as transformers runs it.
// Every character of the text is known by where it comes from, the template or which part of which message:
// so what is trained follows for any template, and what a user types makes no special token. A template is a
// stranger's program: it sees what it is given, and its steps and characters are limited.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/chat/origin.h"

namespace mantissa::inline v0 {

/// A chat as a template sees it: JSON, since templates read more of messages than their text.
struct ChatMessages {
    std::string messages = {};   ///< an array of objects
    std::string tools = {};      ///< an array, or empty: none
    std::string documents = {};  ///< likewise
    /// The chat ends with what begins an answer.
    bool generation_prompt = false;
    /// Other variables, as enable_thinking: JSON by name.
    std::map<std::string, std::string> variables = {};
};

struct RenderedChat {
    std::string text = {};
    /// Where runs of characters of one origin end, in bytes, ascending.
    struct Run {
        std::size_t end;
        ChatOrigin origin;
    };
    std::vector<Run> runs = {};
};

class ChatTemplate {
  public:
    /// `source` is for messages. Throws UserError, "SOURCE: line N: ...", for what is no template, or uses
    /// what is not supported.
    ChatTemplate(std::string text, std::string source);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    const std::string& text() const;
    const std::string& source() const;
    /// Whether it says itself what is trained, by {% generation %}.
    bool has_marks() const;

    /// Variables of every chat, as bos_token: they count as the template's own words.
    void set_tokens(std::map<std::string, std::string> tokens);
    /// The time that strftime_now tells; without it, the clock's.
    void set_time(const std::tm& now);

    /// Throws UserError, "SOURCE: line N: ...", for a chat that the template refuses or cannot read.
    RenderedChat render(const ChatMessages& chat) const;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace mantissa::inline v0
