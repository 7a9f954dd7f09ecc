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

/// The template's words behind an answer that is the last message, and behind one that a question follows;
/// none where it refuses such chats.
std::vector<std::string> words_behind_answers(const ChatTemplate& chat_template);

}  // namespace mantissa::inline v0
