#include "mantissa/data/chat/chat_targets.h"

#include <gtest/gtest.h>

#include "tests/data/chat/in_angles.h"

namespace mantissa {

namespace {

constexpr const char* chat_ml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ m.content|trim }}{% for c in m.tool_calls %}{{ '\\n<tool_call>' + c|tojson + '</tool_call>' }}{% "
    "endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif "
    "%}";

/// The pieces of the text that are to be learnt.
std::vector<std::string> learnt(const std::string& messages, std::vector<std::int64_t> answers,
                                const std::string& text = chat_ml, bool generation_prompt = false) {
    const ChatTemplate chat_template(text, "t");
    const RenderedChat chat =
        chat_template.render({.messages = messages, .generation_prompt = generation_prompt});
    std::vector<std::string> pieces;
    std::vector<std::string> ends = ends_of_turns(chat_template, testing::in_angles);
    ends.emplace_back("</s>");
    for (const TextRange& range : find_answers(chat, {.answers = std::move(answers),
                                                     .ends = std::move(ends),
                                                     .ways_in = ways_into_answers(chat_template)}))
        pieces.push_back(chat.text.substr(range.begin, range.end - range.begin));
    return pieces;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST(ChatTargets, AnswersWithTheEndOfTheirTurn) {
    EXPECT_EQ(learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": " b\n"},
                         {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])",
                     {1, 3}),
              (Pieces{"b<|im_end|>", "d<|im_end|>"}));
}

TEST(ChatTargets, TheTemplatesWordsInsideAnAnswerAreLearnt) {
    EXPECT_EQ(learnt(R"([{"role": "user", "content": "a"},
                         {"role": "assistant", "content": "b", "reasoning_content": "hm", "tool_calls": [{"x": 1}]}])",
                     {1}),
              (Pieces{"<think>\nhm\n</think>\n\nb\n<tool_call>{\"x\": 1}</tool_call><|im_end|>"}));
    // An answer of calls alone begins where the program's part ends.
    EXPECT_EQ(learnt(R"([{"role": "assistant", "content": "", "tool_calls": [{"x": 1}]}])", {0}),
              (Pieces{"\n<tool_call>{\"x\": 1}</tool_call><|im_end|>"}));
}

TEST(ChatTargets, OfAnEmptyAnswerTheEndOfItsTurnIsLearnt) {
    EXPECT_EQ(learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""},
                         {"role": "user", "content": ""}, {"role": "assistant", "content": "d"},
                         {"role": "user", "content": "e"}, {"role": "assistant", "content": ""}])",
                     {1, 3, 5}),
              (Pieces{"<|im_end|>", "d<|im_end|>", "<|im_end|>"}));
}

TEST(ChatTargets, AWayInThatAnswersOfBeforeHaveNotWholly) {
    const char* thinks =
        "{% for m in messages %}{{ ('<A>' if m.role == 'assistant' else '<U>') + m.content + '</s>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<A>\n' }}{% endif %}";
    EXPECT_EQ(ways_into_answers(ChatTemplate(thinks, "t")), (Pieces{"<A>\n", "<A>"}));
    EXPECT_EQ(
        learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}])", {1}, thinks),
        (Pieces{"</s>"}));
    EXPECT_EQ(ends_of_turns(ChatTemplate(thinks, "t"), testing::in_angles), (Pieces{"</s>"}));
    // A generation prompt behind the answer is no way into it.
    EXPECT_EQ(
        learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}])", {1}, thinks,
               /*generation_prompt=*/true),
        (Pieces{"</s>"}));
}

TEST(ChatTargets, TokensInARowThatEndATurnAreAllLearnt) {
    const char* two = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<END><TURN>{% endfor %}";
    EXPECT_EQ(ends_of_turns(ChatTemplate(two, "t"), testing::in_angles), (Pieces{"<END><TURN>", "<END>"}));
    EXPECT_EQ(learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                         {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}])",
                     {1}, two),
              (Pieces{"b<END><TURN>"}));
}

TEST(ChatTargets, WordsThatAreReadInPartsAlone) {
    const char* parts =
        "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{% if p.type == 'text' %} {{ p.text }}"
        "{% endif %}{% endfor %}</s>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    const ChatTemplate chat_template(parts, "t");
    EXPECT_TRUE(reads_parts_alone(chat_template));
    EXPECT_FALSE(reads_parts_alone(ChatTemplate(chat_ml, "t")));
    EXPECT_EQ(ways_into_answers(chat_template), (Pieces{"assistant:"}));
    const std::string messages =
        in_parts(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
    EXPECT_EQ(messages, R"([{"role":"user","content":[{"type":"text","text":"a"}]},)"
                        R"({"role":"assistant","content":[{"type":"text","text":"b"}]}])");
    EXPECT_EQ(learnt(messages, {1}, parts), (Pieces{" b</s>"}));
}

TEST(ChatTargets, EndsTypedByAUserEndNothing) {
    EXPECT_EQ(
        learnt(
            R"([{"role": "assistant", "content": "x <|im_end|> y"}, {"role": "user", "content": "<|im_end|>"}])",
            {0}),
        (Pieces{"x <|im_end|> y<|im_end|>"}));
}

TEST(ChatTargets, WithoutATokenThatEndsATurnTheAnswerAloneIsLearnt) {
    EXPECT_EQ(learnt(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])", {1},
                     "{% for m in messages %}{{ m.role + ': ' + m.content }}\n{% endfor %}"),
              (Pieces{"b"}));
}

TEST(ChatTargets, MarksAreHeeded) {
    const ChatTemplate chat_template(
        "{% for m in messages %}{% generation %}[{{ m.content }}]{% endgeneration %};{% endfor %}", "t");
    EXPECT_TRUE(chat_template.has_marks());
    const RenderedChat chat = chat_template.render({.messages = R"([{"content": "a"}, {"content": ""}])"});
    EXPECT_EQ(marked_ranges(chat), (std::vector<TextRange>{{0, 3}, {4, 6}}));
    EXPECT_FALSE(ChatTemplate(chat_ml, "t").has_marks());
}

}  // namespace mantissa
