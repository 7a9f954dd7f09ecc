#include "mantissa/data/chat/chat_targets.h"

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// The words of messages: all but their roles, which stand in what leads in an answer.
bool is_said(ChatOrigin origin) { return origin.message() >= 0 && origin.part() != ChatOrigin::Part::role; }

struct Said {
    std::int64_t message;
    TextRange range;
};

/// Where the words of each message lie, from the first to the last, in the order of the text.
std::vector<Said> said_in(const RenderedChat& chat) {
    std::vector<Said> all;
    std::size_t begin = 0;
    for (const auto& [end, origin] : chat.runs) {
        if (is_said(origin)) {
            if (all.empty() || all.back().message != origin.message())
                all.push_back({origin.message(), {begin, end}});
            all.back().range.end = end;
        }
        begin = end;
    }
    return all;
}

/// The end of the first text that ends a turn in a range; npos: there is none.
std::size_t behind_end_of_turn(std::string_view text, TextRange range, const std::vector<std::string>& ends) {
    std::size_t first = std::string::npos, behind = std::string::npos;
    for (const std::string& end : ends) {
        const std::size_t at = text.substr(0, range.end).find(end, range.begin);
        if (end.empty() || at >= first) continue;
        first = at;
        behind = at + end.size();
    }
    return behind;
}

}  // namespace

std::vector<TextRange> find_answers(const RenderedChat& chat, const AnswersToFind& find) {
    const std::vector<Said> said = said_in(chat);
    const std::string_view text = chat.text;
    std::vector<TextRange> found;
    for (std::size_t i = 0; i < said.size(); ++i) {
        if (!std::ranges::binary_search(find.answers, said[i].message)) continue;
        TextRange range = said[i].range;
        const std::size_t before =
            std::max(i ? said[i - 1].range.end : 0, found.empty() ? 0 : found.back().end);
        const std::size_t after = i + 1 < said.size() ? said[i + 1].range.begin : text.size();
        // The template's words between the lead-in and the answer's first are the answer's, too.
        if (!find.prompt.empty()) {
            const std::size_t at = text.substr(0, range.begin).rfind(find.prompt);
            if (at != std::string_view::npos && at >= before) range.begin = at + find.prompt.size();
        }
        const std::size_t end = behind_end_of_turn(text, {range.end, after}, find.ends);
        if (end != std::string::npos) range.end = end;
        if (!found.empty() && found.back().end >= range.begin)
            found.back().end = std::max(found.back().end, range.end);
        else
            found.push_back(range);
    }
    return found;
}

std::vector<TextRange> marked_ranges(const RenderedChat& chat) {
    std::vector<TextRange> ranges;
    std::size_t begin = 0;
    for (const auto& [end, origin] : chat.runs) {
        if (origin.is_marked()) {
            if (ranges.empty() || ranges.back().end != begin) ranges.push_back({begin, begin});
            ranges.back().end = end;
        }
        begin = end;
    }
    return ranges;
}

std::string generation_prompt_of(const ChatTemplate& chat_template) {
    try {
        ChatMessages chat{.messages = R"([{"role": "user", "content": "a"}])"};
        const std::string without = chat_template.render(chat).text;
        chat.generation_prompt = true;
        const std::string with = chat_template.render(chat).text;
        return with.starts_with(without) ? with.substr(without.size()) : "";
    } catch (const UserError&) {
        return "";
    }
}

}  // namespace mantissa::inline v0
