// A model's chat template: a Jinja program that turns a chat into one text, run as transformers runs it.
// Every character of the text knows its origin, the template or a part of a message. So the learnt part
// follows for any template, and a user's text makes no special token. A template is untrusted: it sees only
// its input, and its steps and characters are limited.
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

/// A chat as a template's input: JSON, since templates read more of messages than their text.
struct ChatMessages {
    std::string messages = {};   ///< an array of objects
    std::string tools = {};      ///< an array, or empty: none
    std::string documents = {};  ///< likewise
    /// The chat ends with the template's beginning of an answer.
    bool generation_prompt = false;
    /// Other variables, as enable_thinking: JSON by name.
    std::map<std::string, std::string> variables = {};
};

struct RenderedChat {
    std::string text = {};
    /// Runs of characters of one origin: `end` is in bytes, ascending.
    struct Run {
        std::size_t end;
        ChatOrigin origin;
    };
    std::vector<Run> runs = {};
};

class ChatTemplate {
  public:
    /// `source` is for errors. Throws UserError, "SOURCE: line N: ...", for an invalid template and for
    /// unsupported syntax.
    ChatTemplate(std::string text, std::string source);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    const std::string& text() const;
    const std::string& source() const;
    /// Whether the template marks the learnt text by {% generation %}.
    bool has_marks() const;

    /// Sets variables of every chat, as bos_token; their origin is the template.
    void set_tokens(std::map<std::string, std::string> tokens);
    /// Sets the time for strftime_now; by default, it is the clock's.
    void set_time(const std::tm& now);

    /// Throws UserError, "SOURCE: line N: ...", for a chat that the template refuses or cannot read.
    RenderedChat render(const ChatMessages& chat) const;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace mantissa::inline v0
