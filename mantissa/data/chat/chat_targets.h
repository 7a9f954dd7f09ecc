// The characters of a rendered chat that a model is to learn: an answer as the model would write it, from
// behind what the program writes for it up to the token that ends its turn. They follow from where the
// characters come from, so no template needs marks for it; a template that has them decides itself.
#pragma once

#include <span>
#include <string>
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
    /// The texts that end a turn, as "<|im_end|>".
    std::vector<std::string> ends;
    /// The text that a template writes to have an answer follow (generation_prompt_of); an answer begins
    /// behind it.
    std::string prompt = {};
};

/// Ascending, and not empty each: with the token that ends the turn, and without the white space behind it.
std::vector<TextRange> find_answers(const RenderedChat& chat, const AnswersToFind& find);

/// The ranges between generation marks.
std::vector<TextRange> marked_ranges(const RenderedChat& chat);

/// The text that a chat with a generation prompt has more than the same chat without; empty where it has
/// none, or refuses such a chat.
std::string generation_prompt_of(const ChatTemplate& chat_template);

}  // namespace mantissa::inline v0
