// The characters of a rendered chat that a model learns: an answer as the model writes it, from the end of
// the template's prefix to the token that ends the turn. They follow from the characters' origins, so no
// template needs marks; if a template has marks, they decide.
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
    /// The texts that end a turn, as "<|im_end|>"; if one begins another, the longer comes first.
    std::vector<std::string> ends;
    /// Texts that a template writes before an answer (ways_into_answers); the answer begins after the first
    /// one found.
    std::vector<std::string> ways_in = {};
};

/// The ranges of answers, ascending and not empty: each with the token that ends the turn, without the white
/// space after it. An answer without words is its turn's end, located by a text in `ways_in`.
std::vector<TextRange> find_answers(const RenderedChat& chat, const AnswersToFind& find);

/// The ranges between generation marks.
std::vector<TextRange> marked_ranges(const RenderedChat& chat);

/// Texts before an answer: the text that a generation prompt adds to a chat, or else the text after a
/// question's words. If earlier answers begin differently, also the part common to both. Empty if the
/// template refuses such chats.
std::vector<std::string> ways_into_answers(const ChatTemplate& chat_template);

/// Finds the first special token of a text.
using FindSpecial = std::function<std::optional<TextRange>(std::string_view)>;

/// Texts that end an answer's turn: the first special token that the template writes after an answer, either
/// the last message or one before a question. If it always writes further special tokens right after it, as
/// Cohere's does, all together come first. None if it refuses such chats.
std::vector<std::string> ends_of_turns(const ChatTemplate& chat_template, const FindSpecial& find);

/// Whether a template reads text only from lists of parts and drops messages that are plain texts.
bool reads_parts_alone(const ChatTemplate& chat_template);

/// Messages, in JSON, with each text as a list of one part, {"type": "text", "text": "..."}.
std::string in_parts(const std::string& messages);

}  // namespace mantissa::inline v0
