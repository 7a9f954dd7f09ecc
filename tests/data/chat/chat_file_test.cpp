#include "mantissa/data/chat/chat_file.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa {

namespace {

using Places = std::vector<std::int64_t>;

std::string refusal_of(std::string_view text) {
    try {
        parse_chats(text, "c.jsonl");
    } catch (const UserError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST(ChatFile, KindsAreRecognised) {
    const ChatFile messages = parse_chats(
        "\xEF\xBB\xBF{\"id\": 3, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": "
        "\"a\"}, {\"text\": \"b\"}]}, {\"role\": \"model\", \"content\": \"c\"}], \"tools\": "
        "\"[1]\"}\r\n\r\n",
        "c");
    EXPECT_EQ(messages.kind, ChatsAre::messages);
    ASSERT_EQ(messages.chats.size(), 1U);
    EXPECT_EQ(messages.chats[0].chat.messages,
              R"([{"role":"user","content":"ab"},{"role":"model","content":"c"}])");
    EXPECT_EQ(messages.chats[0].chat.tools, "[1]");
    EXPECT_EQ(messages.chats[0].answers, (Places{1}));
    EXPECT_EQ(messages.unread, (std::vector<std::string>{"id"}));

    const ChatFile shared = parse_chats(
        R"([{"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": ""}]}])",
        "c");
    EXPECT_EQ(shared.kind, ChatsAre::conversations);
    EXPECT_EQ(
        shared.chats[0].chat.messages,
        R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":""}])");
    EXPECT_TRUE(shared.chats[0].has_empty_answer);

    const ChatFile completions = parse_chats(
        R"({"prompt": [{"role": "assistant", "content": "x"}], "completion": [{"role": "assistant", "content": "y"}]}
{"prompt": "p", "completion": "q"})",
        "c");
    EXPECT_EQ(completions.chats[0].answers, (Places{1}));
    EXPECT_TRUE(completions.chats[1].is_text);
    EXPECT_EQ(completions.chats[1].prompt + completions.chats[1].text, "pq");

    EXPECT_EQ(parse_chats("{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "c").chats.size(), 2U);
    const ChatFile one = parse_chats("[\n {\"role\": \"user\", \"content\": \"a\"}\n]\n", "c");
    EXPECT_EQ(one.chats[0].messages, 1);
    EXPECT_EQ(parse_chats("{\n\"text\": \"a\"\n}\n", "c").kind, ChatsAre::texts);
}

TEST(ChatFile, FaultsAreNamedWithTheirLine) {
    const std::string good = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    EXPECT_EQ(refusal_of(good + "\n" + good + "{\"messages\": [{\"role\"}]}\n").substr(0, 43),
              "c.jsonl: line 4: not JSON, at character 22:");
    EXPECT_EQ(
        refusal_of(good + R"({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]})"),
        "c.jsonl: line 2: message 2 has no \"role\"; expected {\"role\": \"user\", \"content\": \"...\"}");
    EXPECT_EQ(
        refusal_of(good + "{\"text\": \"a\"}"),
        "c.jsonl: line 2: holds text, the first chat of the file messages; keep kinds in files of their "
        "own");
    EXPECT_EQ(refusal_of("{\"instruction\": \"a\", \"output\": \"b\"}\n"),
              "c.jsonl: line 1: is no chat, its members: \"instruction\", \"output\"; expected messages, "
              "prompt and completion, conversations (from and value), or text");
    EXPECT_EQ(refusal_of("[\n  {\"text\": \"a\"},\n  {\"text\": }\n]\n").substr(0, 26),
              "c.jsonl: line 3: not JSON:");
    EXPECT_EQ(refusal_of(R"({"messages": []})"), "c.jsonl: line 1: \"messages\": holds no message");
    EXPECT_EQ(refusal_of(R"({"messages": [{"role": "user", "content": 3}]})"),
              "c.jsonl: line 1: message 1: \"content\": expected a text, found number");
    EXPECT_EQ(refusal_of(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
              "c.jsonl: line 1: message 1: \"content\": only parts of text are read, as {\"type\": \"text\", "
              "\"text\": \"...\"}");
    EXPECT_EQ(refusal_of(R"({"conversations": [{"from": "bard", "value": "a"}]})"),
              "c.jsonl: line 1: turn 1: \"from\" is \"bard\"; expected human, gpt, system or tool");
    EXPECT_EQ(
        refusal_of(good + R"({"messages": [{"role": "user", "content": "9", "n": -9223372036854775809}]})"),
        "c.jsonl: line 2: the whole number -9223372036854775809 is outside 64 bits; write it as a text, "
        "in quotes");
    EXPECT_EQ(refusal_of(R"({"text": "18446744073709551616", "n": [18446744073709551615, 1e30, 0]})"), "");
    EXPECT_EQ(refusal_of(R"({"text": "a", "n": 1e999})"), "c.jsonl: line 1: number overflow parsing '1e999'");
    EXPECT_EQ(refusal_of("\n\n"), "c.jsonl: holds no chat");
    EXPECT_EQ(refusal_of("3\n"), "c.jsonl: line 1: expected an object, found number");
    EXPECT_EQ(refusal_of("{\"text\": " + std::string(200000, '[') + "\n"),
              "c.jsonl: line 1: JSON nested more than 100 deep");
}

TEST(ChatFile, ManyTurns) {
    std::string chat = "{\"messages\": [";
    for (int i = 0; i < 50000; ++i)
        chat += R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)";
    chat.back() = ']';
    const ChatFile file = parse_chats(chat + "}\n", "c");
    EXPECT_EQ(file.chats[0].messages, 100000);
    EXPECT_EQ(file.chats[0].answers.size(), 50000U);
}

}  // namespace mantissa
