#include "mantissa/data/chat/chat_targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// The text of a message, except its role, which belongs to the text before an answer.
bool is_said(ChatOrigin origin) { return origin.message() >= 0 && origin.part() != ChatOrigin::Part::role; }

struct Said {
    std::int64_t message;
    TextRange range;
};

/// Range of each message's text, from its first to its last character, in order.
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

/// End of the text among `texts` that comes first in a range; npos: none.
std::size_t behind_first(std::string_view text, TextRange range, const std::vector<std::string>& texts) {
    std::size_t first = std::string::npos, behind = std::string::npos;
    for (const std::string& each : texts) {
        const std::size_t at = text.substr(0, range.end).find(each, range.begin);
        if (each.empty() || at >= first) continue;
        first = at;
        behind = at + each.size();
    }
    return behind;
}

/// End of the last occurrence of the first of `texts` that occurs in a range; npos: none.
std::size_t behind_last(std::string_view text, TextRange range, const std::vector<std::string>& texts) {
    const std::string_view within = text.substr(range.begin, range.end - range.begin);
    for (const std::string& each : texts)
        if (const std::size_t at = within.rfind(each); !each.empty() && at != std::string_view::npos)
            return range.begin + at + each.size();
    return std::string_view::npos;
}

}  // namespace

std::vector<TextRange> find_answers(const RenderedChat& chat, const AnswersToFind& find) {
    const std::vector<Said> said = said_in(chat);
    const std::string_view text = chat.text;
    std::vector<TextRange> found;
    const auto add = [&](TextRange range) {
        if (range.begin == range.end) return;
        if (!found.empty() && found.back().end >= range.begin)
            found.back().end = std::max(found.back().end, range.end);
        else
            found.push_back(range);
    };
    std::size_t next = 0;  // index into `said`
    for (const std::int64_t answer : find.answers) {
        while (next < said.size() && said[next].message < answer) ++next;
        const bool speaks = next < said.size() && said[next].message == answer;
        TextRange before{std::max(next ? said[next - 1].range.end : 0, found.empty() ? 0 : found.back().end),
                         next < said.size() ? said[next].range.begin : text.size()};
        before.begin = std::min(before.begin, before.end);
        if (!speaks) {
            const std::size_t begin = behind_first(text, before, find.ways_in);
            if (begin == std::string_view::npos) continue;
            const std::size_t end = behind_first(text, {begin, before.end}, find.ends);
            if (end != std::string::npos) add({begin, end});
            continue;
        }
        TextRange range = said[next].range;
        ++next;
        // The template's text between the way in and the answer's first character belongs to the answer.
        if (const std::size_t begin = behind_last(text, before, find.ways_in);
            begin != std::string_view::npos)
            range.begin = begin;
        const std::size_t after = next < said.size() ? said[next].range.begin : text.size();
        const std::size_t end = behind_first(text, {range.end, after}, find.ends);
        if (end != std::string::npos) range.end = end;
        add(range);
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

namespace {

constexpr const char* a_question = R"([{"role": "user", "content": "a"}])";
constexpr const char* a_chat = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
constexpr const char* a_chat_that_goes_on =
    R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])";

/// Renders a chat, in parts if the template reads only these.
RenderedChat render(const ChatTemplate& chat_template, const std::string& messages,
                    bool generation_prompt = false) {
    return chat_template.render({.messages = reads_parts_alone(chat_template) ? in_parts(messages) : messages,
                                 .generation_prompt = generation_prompt});
}

/// The template's text before and after an answer "b".
struct AroundAnswer {
    std::string before, behind;
};
std::optional<AroundAnswer> around_answer(const ChatTemplate& chat_template, const char* messages) {
    try {
        const RenderedChat chat = render(chat_template, messages);
        const std::vector<Said> said = said_in(chat);
        if (said.size() < 2 || said[1].message != 1) return {};
        const std::size_t begin = said[1].range.end,
                          end = said.size() > 2 ? said[2].range.begin : chat.text.size();
        return AroundAnswer{chat.text.substr(said[0].range.end, said[1].range.begin - said[0].range.end),
                            chat.text.substr(begin, end - begin)};
    } catch (const UserError&) {
        return {};
    }
}

}  // namespace

std::vector<std::string> ways_into_answers(const ChatTemplate& chat_template) {
    RenderedChat with;
    std::string without;
    try {
        with = render(chat_template, a_question, true);
        without = render(chat_template, a_question).text;
    } catch (const UserError&) {
        return {};
    }
    const std::vector<Said> said = said_in(with);
    const bool prompts = with.text.starts_with(without) && with.text.size() > without.size();
    const std::string before = around_answer(chat_template, a_chat).value_or(AroundAnswer{}).before;
    if (!prompts) {
        // An answer follows the question, after white space at most.
        const std::string way = said.size() == 1 ? with.text.substr(said[0].range.end) : "";
        const bool goes_on = !way.empty() && before.starts_with(way) &&
                             before.find_first_not_of(" \t\n", way.size()) == std::string::npos;
        return goes_on ? std::vector<std::string>{way} : std::vector<std::string>{};
    }
    std::vector<std::string> ways = {with.text.substr(without.size())};
    // The end of a question's turn precedes the way in. A few common letters are chance.
    for (std::size_t size = ways[0].size(); 2 * size >= ways[0].size(); --size)
        if (before.find(ways[0].substr(0, size)) != std::string::npos) {
            if (size < ways[0].size()) ways.push_back(ways[0].substr(0, size));
            break;
        }
    return ways;
}

namespace {

/// The first special token, and the special tokens right after it.
std::vector<std::string> specials_in_a_row(std::string_view text, const FindSpecial& find) {
    std::vector<std::string> tokens;
    for (auto next = find(text); next && (tokens.empty() || next->begin == 0); next = find(text)) {
        tokens.emplace_back(text.substr(next->begin, next->end - next->begin));
        text.remove_prefix(next->end);
    }
    return tokens;
}

}  // namespace

std::vector<std::string> ends_of_turns(const ChatTemplate& chat_template, const FindSpecial& find) {
    std::vector<std::string> words, ends;
    for (const char* messages : {a_chat, a_chat_that_goes_on})
        if (auto around = around_answer(chat_template, messages)) words.push_back(std::move(around->behind));
    if (words.empty()) return {};
    const auto differ = std::ranges::mismatch(words.front(), words.back()).in1;
    const auto always = specials_in_a_row({words.front().begin(), differ}, find);
    if (always.size() > 1) ends.push_back(fmt::format("{}", fmt::join(always, "")));
    for (const std::string& each : words) {
        const auto token = find(each);
        const std::string end = token ? each.substr(token->begin, token->end - token->begin) : "";
        if (token && std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
    }
    return ends;
}

bool reads_parts_alone(const ChatTemplate& chat_template) {
    const auto is_read = [&](const std::string& messages) {
        try {
            return !said_in(chat_template.render({.messages = messages})).empty();
        } catch (const UserError&) {
            return false;
        }
    };
    return !is_read(a_question) && is_read(in_parts(a_question));
}

std::string in_parts(const std::string& messages) {
    auto all = nlohmann::ordered_json::parse(messages);
    for (auto& message : all)
        if (message.contains("content") && message["content"].is_string()) {
            const nlohmann::ordered_json part = {{"type", "text"}, {"text", message["content"]}};
            message["content"] = nlohmann::ordered_json::array({part});
        }
    return all.dump();
}

}  // namespace mantissa::inline v0
