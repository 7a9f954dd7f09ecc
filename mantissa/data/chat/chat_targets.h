// The characters of a rendered chat that a model is to learn: an answer as the model would write it, from
// behind what the program writes for it up to the token that ends its turn. They follow from where the
// characters come from, so no template needs marks for it; a template that has them decides itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/chat/chat_template.h"

namespace mantissa::inline v0 {

/// Bytes begin ... end - 1 of a text.
struct TextRange {
    std::size_t begin, end;
    bool operator==(const TextRange&) const = default;
};

struct AnswersToFind {
    /// The places of the messages that are answers, ascending.
    std::vector<std::int64_t> answers;
    /// The texts that end a turn, as "<|im_end|>"; of two that begin alike, the longer one first.
    std::vector<std::string> ends;
    /// Texts that a template writes to have an answer follow (ways_into_answers), which begins behind the
    /// first of them that is there.
    std::vector<std::string> ways_in = {};
};

/// Ascending, and not empty each: with the token that ends the turn, and without the white space behind it.
/// An answer of no words is the end of its turn, where a way in says where it lies.
std::vector<TextRange> find_answers(const RenderedChat& chat, const AnswersToFind& find);

/// The ranges between generation marks.
std::vector<TextRange> marked_ranges(const RenderedChat& chat);

/// The text that a chat with a generation prompt has more than the same chat without, or else what stands
/// behind a question's words; and, where an answer of before begins otherwise, what the two have in common.
/// Empty where the template refuses such chats.
std::vector<std::string> ways_into_answers(const ChatTemplate& chat_template);

/// Finds the first special token of a text.
using FindSpecial = std::function<std::optional<TextRange>(std::string_view)>;

/// Texts that end an answer's turn: the first special token that the template writes behind an answer that is
/// the last message, and behind one that a question follows. Where it always writes others right behind it,
/// as Cohere's does, they come first, all in one text. None where it refuses such chats.
std::vector<std::string> ends_of_turns(const ChatTemplate& chat_template, const FindSpecial& find);

/// Whether a template reads words from lists of parts alone: those of a message that is a text are left out.
bool reads_parts_alone(const ChatTemplate& chat_template);

/// Messages, in JSON, with each text as a list of one part, {"type": "text", "text": "..."}.
std::string in_parts(const std::string& messages);

}  // namespace mantissa::inline v0
