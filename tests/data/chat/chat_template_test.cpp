// Chat templates against Jinja2 with transformers' settings: what bench/peers/chat_templates.py wrote.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/chat/chat_targets.h"
#include "mantissa/data/chat/chat_template.h"
#include "tests/data/chat/in_angles.h"

namespace mantissa {

namespace {

std::tm time_of_fixture() {
    std::tm time{};
    time.tm_year = 124, time.tm_mon = 6, time.tm_mday = 26, time.tm_wday = 5;
    return time;
}

ChatMessages chat_of(const nlohmann::json& line) {
    ChatMessages chat{.messages = line["messages"], .tools = line["tools"]};
    chat.generation_prompt = line["generation_prompt"];
    for (const auto& [name, value] : line["variables"].items()) chat.variables[name] = value;
    return chat;
}

/// The places between generation marks, as Jinja2 has them: in characters.
std::vector<std::pair<std::size_t, std::size_t>> marked_of(const RenderedChat& chat) {
    std::vector<std::pair<std::size_t, std::size_t>> marked;
    std::size_t begin = 0, characters = 0;
    for (const auto& [end, origin] : chat.runs) {
        const std::size_t first = characters;
        for (std::size_t i = begin; i < end; ++i) characters += (chat.text[i] & 0xC0) != 0x80;
        begin = end;
        if (!origin.is_marked()) continue;
        if (!marked.empty() && marked.back().second == first)
            marked.back().second = characters;
        else
            marked.emplace_back(first, characters);
    }
    return marked;
}

/// Those that touch are one; empty ones are none.
std::vector<std::pair<std::size_t, std::size_t>> marked_of(const nlohmann::json& line) {
    std::vector<std::pair<std::size_t, std::size_t>> marked;
    for (const auto& [begin, end] : line["marked"].get<std::vector<std::pair<std::size_t, std::size_t>>>()) {
        if (begin == end) continue;
        if (!marked.empty() && marked.back().second == begin)
            marked.back().second = end;
        else
            marked.emplace_back(begin, end);
    }
    return marked;
}

void expect_as_judged(ChatTemplate& chat_template, const nlohmann::json& line) {
    chat_template.set_time(time_of_fixture());
    chat_template.set_tokens(line["tokens"]);
    try {
        const RenderedChat chat = chat_template.render(chat_of(line));
        if (line.contains("error")) {
            ADD_FAILURE() << "Jinja2 refuses it: " << line["error"] << "\n" << line["messages"];
            return;
        }
        EXPECT_EQ(chat.text, line["text"].get<std::string>()) << line["messages"];
        EXPECT_EQ(marked_of(chat), marked_of(line)) << line["messages"];
        EXPECT_EQ(chat.runs.empty() ? 0 : chat.runs.back().end, chat.text.size());
    } catch (const UserError& error) {
        EXPECT_TRUE(line.contains("error")) << error.what() << "\n" << line["messages"];
        // The template's own refusals have the same words.
        static const std::string refuses = "TemplateError: ";
        const std::string judged = line.value("error", "");
        if (judged.starts_with(refuses)) {
            EXPECT_NE(std::string(error.what()).find(judged.substr(refuses.size())), std::string::npos)
                << error.what();
        }
    }
}

std::string folder() { return std::string(MANTISSA_SOURCE_DIR) + "/tests/data/chat"; }

std::string error_of(const std::string& text, const ChatMessages& chat = {.messages = "[]"}) {
    try {
        const ChatTemplate chat_template(text, "t.jinja");
        return "no error, but: " + chat_template.render(chat).text.substr(0, 100);
    } catch (const UserError& error) {
        return error.what();
    }
}

}  // namespace

TEST(ChatTemplates, EveryConstructIsAsInJinja2) {
    const auto fixture = nlohmann::json::parse(read_file(folder() + "/chat_templates_fixture.json"));
    ASSERT_EQ(fixture.size(), 13u);
    for (const auto& own : fixture) {
        SCOPED_TRACE(own["name"]);
        ChatTemplate chat_template(own["template"], own["name"]);
        for (const auto& line : own["chats"]) expect_as_judged(chat_template, line);
    }
}

TEST(ChatTemplatesSlow, PublishedTemplatesAreAsInJinja2) {
    const std::string path = std::string(MANTISSA_BINARY_DIR) + "/chat_templates.jsonl";
    if (!std::filesystem::exists(path))
        GTEST_SKIP() << "no chats of published templates: bench/peers/chat_templates.py makes them";
    std::ifstream lines(path);
    std::map<std::string, ChatTemplate> templates;
    std::string text;
    while (std::getline(lines, text)) {
        const auto line = nlohmann::json::parse(text);
        const std::string file = line["template"];
        SCOPED_TRACE(file);
        auto known = templates.find(file);
        if (known == templates.end())
            known = templates.emplace(file, ChatTemplate(read_file(file), file)).first;
        expect_as_judged(known->second, line);
        if (HasFailure()) break;
    }
    EXPECT_GE(templates.size(), 41u);
}

namespace {

/// An answer as the words of its message and its end; where it begins is the template's convention.
using AnswerEnds = std::vector<std::pair<std::size_t, std::size_t>>;
AnswerEnds ends_of(const RenderedChat& chat, const std::vector<TextRange>& ranges) {
    AnswerEnds all;
    for (TextRange range : ranges) {
        while (range.end > range.begin &&
               std::isspace(static_cast<unsigned char>(chat.text[range.end - 1])) != 0)
            --range.end;
        std::size_t begin = 0, words = 0;
        for (const auto& [end, origin] : chat.runs) {
            if (origin.message() >= 0 && origin.part() != ChatOrigin::Part::role)
                for (std::size_t i = std::max(begin, range.begin); i < std::min(end, range.end); ++i) ++words;
            begin = end;
        }
        if (range.end > range.begin) all.emplace_back(range.end, words);
    }
    return all;
}

/// Templates whose marks say something else than where answers end, and how often of so many.
struct MarksOtherwise {
    const char* why;
    int most;
};
constexpr const char
    *calls = "marks end before a tool's answer, or behind the end that calls have",
    *channels = "a call ends by a token of its own, and its name stands before the tool's answer, too",
    *end_of_all = "marks go on to the end of the whole text, behind the end of the turn";
const std::map<std::string, MarksOtherwise> marks_otherwise = {
    {"diffusion_gemma_training", {calls, 34}}, {"glm4moe_training", {calls, 34}},
    {"gptoss_training", {channels, 33}},       {"phi3_5_training", {end_of_all, 26}},
    {"phi3_training", {end_of_all, 25}},
};

}  // namespace

TEST(ChatTemplatesSlow, MasksByOriginAreThoseOfGenerationMarks) {
    const std::string path = std::string(MANTISSA_BINARY_DIR) + "/chat_templates.jsonl";
    if (!std::filesystem::exists(path))
        GTEST_SKIP() << "no chats of published templates: bench/peers/chat_templates.py makes them";
    std::ifstream lines(path);
    std::map<std::string, ChatTemplate> templates;
    std::map<std::string, int> compared, others;
    std::map<std::string, std::string> examples;  // by origin, and by marks
    std::string text;
    while (std::getline(lines, text)) {
        const auto line = nlohmann::json::parse(text);
        const std::string file = line["template"], name = std::filesystem::path(file).stem().string();
        if (!name.ends_with("_training") || line.contains("error")) continue;
        auto known = templates.find(file);
        if (known == templates.end()) {
            known = templates.emplace(file, ChatTemplate(read_file(file), file)).first;
            known->second.set_tokens(line["tokens"]);
        }
        const ChatTemplate& chat_template = known->second;
        AnswersToFind find{.answers = {},
                           .ends = ends_of_turns(chat_template, testing::in_angles),
                           .ways_in = ways_into_answers(chat_template)};
        find.ends.emplace_back("</s>");
        const auto messages = nlohmann::json::parse(line["messages"].get<std::string>());
        bool has_model = false;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            has_model |= messages[i]["role"] == "model";
            if (messages[i]["role"] == "assistant") find.answers.push_back(static_cast<std::int64_t>(i));
        }
        if (has_model) continue;  // the marks are for the role assistant alone
        const RenderedChat chat = chat_template.render(chat_of(line));
        ++compared[name];
        if (ends_of(chat, find_answers(chat, find)) == ends_of(chat, marked_ranges(chat))) continue;
        ++others[name];
        std::string& example = examples[name];
        if (!example.empty()) continue;
        for (const auto& ranges : {find_answers(chat, find), marked_ranges(chat)}) {
            example += ranges.empty() ? "nothing" : "";
            for (const TextRange& range : ranges)
                example += "[" + chat.text.substr(range.begin, range.end - range.begin) + "]";
            example += "\n";
        }
    }
    EXPECT_EQ(compared.size(), 31u);
    for (const auto& [name, count] : compared) {
        const auto otherwise = marks_otherwise.find(name);
        const int most = otherwise == marks_otherwise.end() ? 0 : otherwise->second.most;
        EXPECT_EQ(others[name], most) << name << ": " << others[name] << " of " << count << "\n"
                                      << examples[name];
        EXPECT_GT(count, 0);
    }
}

TEST(ChatTemplates, EachCharacterKnowsItsOrigin) {
    const ChatTemplate chat_template(
        "{% for m in messages %}<{{ m.role }}>{{ m.content|upper|trim }}{% for c in m.tool_calls %}"
        "{{ c|tojson }}{% endfor %};{% endfor %}",
        "t");
    const RenderedChat chat = chat_template.render(
        {.messages =
             R"([{"role": "user", "content": " ß;"}, {"role": "a", "content": "", "tool_calls": [{"x": 1}]}])"});
    EXPECT_EQ(chat.text, "<user>SS;;<a>{\"x\": 1};");
    using Part = ChatOrigin::Part;
    const std::vector<std::tuple<std::size_t, std::int64_t, Part>> expected = {
        {1, -1, Part::other},  {5, 0, Part::role},    {6, -1, Part::other},
        {9, 0, Part::content}, {11, -1, Part::other}, {12, 1, Part::role},
        {13, -1, Part::other}, {21, 1, Part::calls},  {22, -1, Part::other}};
    ASSERT_EQ(chat.runs.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto& [end, message, part] = expected[i];
        EXPECT_EQ(chat.runs[i].end, end);
        EXPECT_EQ(chat.runs[i].origin.message(), message);
        EXPECT_EQ(chat.runs[i].origin.part(), part);
        EXPECT_EQ(chat.runs[i].origin.is_template(), message < 0);
    }
}

TEST(ChatTemplates, WhatDoesNotEndOrGrowsWithoutEndIsRefused) {
    const std::string loop =
        "{% set r = range(9999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}";
    EXPECT_EQ(error_of(loop).substr(0, 26), "t.jinja: line 1: more than");
    EXPECT_EQ(error_of("{{ 'x' * 900000000 }}").substr(0, 26), "t.jinja: line 1: more than");
    EXPECT_EQ(error_of("{{ 'x' * 10 ** 18 }}"), "t.jinja: line 1: a string over 1,000,000,000 characters");
    const std::string doubled =
        "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}";
    EXPECT_EQ(error_of(doubled), "t.jinja: line 1: more than 64000200 characters are made");
    const std::string nested =
        "{% set n = namespace(x=[]) %}{% for a in range(9999) %}{% set n.x = [n.x] %}{% endfor %}";
    EXPECT_EQ(error_of(nested + "{{ n.x }}"), "t.jinja: line 1: values are nested too deeply");
    EXPECT_EQ(error_of(nested), "no error, but: ");
    EXPECT_EQ(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              "t.jinja: line 1: calls are nested too deeply");
    EXPECT_EQ(error_of("{{ " + std::string(9999, '(') + "1" + std::string(9999, ')') + " }}"),
              "t.jinja: line 1: nested too deeply");
    EXPECT_EQ(error_of("{{ range(10 ** 9) }}"), "t.jinja: line 1: range: more than 100000 numbers");
}

TEST(ChatTemplates, WhatIsWrongIsNamedWithItsLine) {
    EXPECT_EQ(error_of("a\n{{ x.y }}"), "t.jinja: line 2: x is undefined, and has no y");
    EXPECT_EQ(error_of("a\n\n{% if %}"), "t.jinja: line 3: expected a value, got %}");
    EXPECT_EQ(error_of("{% if x %}"), "t.jinja: line 1: expected {% endif %}");
    EXPECT_EQ(error_of("{% include 'x' %}"),
              "t.jinja: line 1: {% include %} is not supported in a chat template");
    EXPECT_EQ(error_of("{{ 1|pprint }}"),
              "t.jinja: line 1: the filter pprint is not supported in a chat template");
    EXPECT_EQ(error_of("{{ 'a'.zfill(3) }}"),
              "t.jinja: line 1: the method zfill is not supported in a chat template");
    EXPECT_EQ(error_of("{{ [].append(1) }}"), "t.jinja: line 1: append is undefined, and cannot be called");
    EXPECT_EQ(error_of("{{ raise_exception('no tools') }}"),
              "t.jinja: line 1: the template refuses it: no tools");
    EXPECT_EQ(error_of("{{ 1 + 'a' }}"), "t.jinja: line 1: an integer + a string has no meaning here");
    // Whole numbers have 64 bits, and others end with a line; comparisons with floats are exact.
    const std::string over = "t.jinja: line 1: a number over 64 bits";
    EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"), over);
    EXPECT_EQ(error_of("{{ messages[0] + 1 }}", {.messages = "[18446744073709551616]"}), over);
    EXPECT_EQ(error_of("{{ '99999999999999999999'|int }}"), "t.jinja: line 1: int: a number over 64 bits");
    EXPECT_EQ(error_of("{{ 9007199254740993 == 9007199254740992.0 }}{{ 1e999 }}"), "no error, but: Falseinf");
    EXPECT_EQ(error_of("{{ '9007199254740993'|int }}"), "no error, but: 9007199254740993");
    EXPECT_EQ(error_of("x", {.messages = "[1,"}).substr(0, 28), "messages: not JSON, at byte ");
    EXPECT_EQ(error_of("\xFF"), "t.jinja: it is not UTF-8");
}

}  // namespace mantissa
