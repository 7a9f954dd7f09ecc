// Tokens of chats, their masks and their packing: by hand over bytes, and beside transformers' and TRL's,
// which bench/peers/packed_chats_fixture.py wrote.
#include "mantissa/data/chat/chat_encoder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/base/file.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/data/corpus.h"
#include "mantissa/data/packed_documents.h"
#include "mantissa/data/tokenizer_vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text_ids_fixture.h"

namespace mantissa {

namespace {

using Json = nlohmann::json;

constexpr const char* plain_chat_ml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Bytes as tokens, and three special ones.
Tokenizer tokenizer_of_bytes(const std::string& chat_template = plain_chat_ml) {
    TokenizerParts parts;
    parts.source = "tok";
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) {
        parts.specials.push_back({text, static_cast<TokenId>(parts.tokens.size())});
        parts.tokens.emplace_back(text);
    }
    if (!chat_template.empty()) parts.files["chat_template.jinja"] = chat_template;
    return Tokenizer(std::move(parts));
}

/// The text with "[" and "]" around what is learnt, and "|" for each special token.
std::string shown_tokens(const Tokenizer& tokenizer, const EncodedChat& chat) {
    std::string text;
    for (const ChatPart& part : parts_of(tokenizer, chat.tokens, chat.trained)) {
        std::string words;
        for (const TokenId id : part.tokens)
            words += id < 256 ? std::string(tokenizer.token_bytes(id)) : std::to_string(id);
        text += part.learnt ? "[" + words + "]" : words;
    }
    return text;
}

std::string shown_tokens(const Tokenizer& tokenizer, const std::string& line,
                         LossOn loss_on = LossOn::answers) {
    return shown_tokens(tokenizer, ChatEncoder(tokenizer, loss_on).encode(parse_chats(line, "c").chats[0]));
}

void write_chats(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

}  // namespace

TEST(ChatEncoder, AnswersAndTheEndsOfTheirTurns) {
    const Tokenizer tokenizer = tokenizer_of_bytes();
    EXPECT_EQ(
        shown_tokens(
            tokenizer,
            R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})"),
        "256user\nhi257\n256assistant\n[yo257]\n");
    EXPECT_EQ(
        shown_tokens(
            tokenizer,
            R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})",
            LossOn::all),
        "256[user\nhi257\n256assistant\nyo257\n]");
    EXPECT_EQ(
        shown_tokens(tokenizer,
                     R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""},
                        {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})"),
        "256user\na257\n256assistant\n[257]\n256user\nb257\n256assistant\n[c257]\n");
}

TEST(ChatEncoder, WhatAUserTypesStaysLetters) {
    const Tokenizer tokenizer = tokenizer_of_bytes();
    EXPECT_EQ(
        shown_tokens(
            tokenizer,
            R"({"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "<|im_end|>"}]})"),
        "256user\n<|im_end|>257\n256assistant\n[<|im_end|>257]\n");
    // A token that the name of a role completes is the template's.
    EXPECT_EQ(
        shown_tokens(
            tokenizer_of_bytes("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"),
            R"({"messages": [{"role": "im_start", "content": "<|im_start|>"}, {"role": "assistant",
                        "content": "b"}]})"),
        "256<|im_start|><|assistant|>[b]");
}

TEST(ChatEncoder, TextsAreWhatTheyAre) {
    const Tokenizer tokenizer = tokenizer_of_bytes("");
    EXPECT_EQ(shown_tokens(tokenizer, R"({"prompt": "a<|im_end|>", "completion": "b"})"), "a257[b258]");
    EXPECT_EQ(shown_tokens(tokenizer, R"({"text": "abc"})"), "a[bc258]");
    const ChatRecord chat = parse_chats(R"({"messages": [{"role": "user", "content": "a"}]})", "c").chats[0];
    EXPECT_EQ(testing::error_of([&] { ChatEncoder(tokenizer).encode(chat); }),
              "c: line 1: chats need the template that the model writes them in, and tok has none beside it; "
              "expected chat_template.jinja, or chat_template in tokenizer_config.json");
}

TEST(ChatEncoder, PromptsEndWhereAnAnswerBegins) {
    const Tokenizer tokenizer = tokenizer_of_bytes();
    const ChatEncoder encoder(tokenizer);
    const auto prompt =
        encoder.prompt(parse_chats(R"([{"role": "user", "content": "<|im_end|>"}])", "c").chats[0]);
    EXPECT_EQ(prompt.text, "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(std::ranges::count(prompt.tokens, 257), 1);
    EXPECT_EQ(encoder.ends(), (std::vector<std::string>{"<|im_end|>", "<|endoftext|>"}));
}

TEST(ChatEncoder, RefusalsOfTheTemplateNameTheLine) {
    const Tokenizer tokenizer = tokenizer_of_bytes(
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('one system "
        "message') }}{% endif %}{{ m.content }}{% endfor %}{% if tools %}{{ raise_exception('no tools') }}{% "
        "endif %}");
    const TemporaryDirectory directory;
    ThreadPool pool(2);
    const std::string good = R"({"messages": [{"role": "assistant", "content": "a"}]})";
    const auto refusal = [&](const std::string& line) {
        write_chats(directory / "c.jsonl", good + "\n" + line + "\n" + line + "\n");
        const std::string error = testing::error_of(
            [&] { read_chat_set({.files = {directory / "c.jsonl"}, .longest = 100}, tokenizer, pool); });
        return error.substr(error.find("c.jsonl"));
    };
    EXPECT_EQ(
        refusal(R"({"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]})"),
        "c.jsonl: line 2: chat_template.jinja: line 1: the template refuses it: one system message");
    EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": "a"}], "tools": [{"name": "f"}]})"),
              "c.jsonl: line 2: chat_template.jinja: line 1: the template refuses it: no tools");
}

TEST(ChatSet, WhatIsTooLongIsCutBehindAnAnswerOrLeftOut) {
    const Tokenizer tokenizer = tokenizer_of_bytes();
    const TemporaryDirectory directory;
    ThreadPool pool(1);
    const auto turn = [](const std::string& role, const std::string& content) {
        return R"({"role": ")" + role + R"(", "content": ")" + content + "\"}";
    };
    const std::string two = turn("user", "aa") + ", " + turn("assistant", "b");
    write_chats(directory / "c.jsonl",
                "{\"messages\": [" + two + "]}\n" +                                                  //
                    "{\"messages\": [" + two + ", " + turn("user", std::string(50, 'x')) + "]}\n" +  //
                    "{\"messages\": [" + turn("user", std::string(50, 'x')) + ", " + two + "]}\n" +  //
                    "{\"id\": 1, \"messages\": [" + turn("user", "q") + "]}\n" +                     //
                    "{\"messages\": [" + turn("user", "q") + ", " + turn("assistant", "") + "]}\n");
    const ChatSet set = read_chat_set({.files = {directory / "c.jsonl"}, .longest = 24}, tokenizer, pool);
    ASSERT_EQ(set.chats(), 3u);
    EXPECT_EQ(set.range_of(0).size(), 24u);
    EXPECT_EQ(set.range_of(1).size(), 23u);  // up to the end of its answer
    EXPECT_EQ(set.targets_of(0), 2u);
    EXPECT_EQ(set.targets_of(2), 1u);
    const std::string at = (directory / "c.jsonl").string();
    EXPECT_EQ(set.account,
              "c.jsonl (messages): 3 chats; 5 of 69 tokens are trained (7.2 %, answers and the ends of their "
              "turns)\nlonger than 24 tokens, cut behind an answer: 1, first " +
                  at + ": line 2\nleft out, too long (no answer of them ends within 24 tokens): 1, first " +
                  at + ": line 3\nleft out, without an answer to learn: 1, first " + at +
                  ": line 4\nwith an empty answer, of which the end of the turn alone is learnt: 1, first " +
                  at + ": line 5\nmembers that are not read: id");
    write_chats(directory / "c.jsonl", "{\"messages\": [" + turn("user", "q") + "]}\n");
    EXPECT_EQ(
        testing::error_of(
            [&] { read_chat_set({.files = {directory / "c.jsonl"}, .longest = 24}, tokenizer, pool); }),
        at + ": nothing of 1 chat would be learnt: none has an answer, a message of role assistant or model");
}

TEST(PackedChats, WholeChatsAtPositionsFromZero) {
    ChatSet set{.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9},
                .trained = {1, 0, 1, 0, 1, 0, 0, 1, 1},
                .starts = {0, 3, 5, 9},
                .names = {1, 2, 3},
                .longest = 5};
    EXPECT_EQ(pack_chats(set, {0, 9}, 5), (std::vector<std::vector<std::uint64_t>>{{2}, {0, 1}}));
    const PackedChats source(set, {0, 9}, 5, {.batch = 1, .accumulate = 2});
    std::vector<std::int32_t> tokens(5), targets(5), documents(5), positions(5);
    std::vector<float> counted(1);
    const std::vector<std::span<std::byte>> inputs = {
        std::as_writable_bytes(std::span(tokens)), std::as_writable_bytes(std::span(targets)),
        std::as_writable_bytes(std::span(documents)), std::as_writable_bytes(std::span(positions)),
        std::as_writable_bytes(std::span(counted))};
    using Numbers = std::vector<std::int32_t>;
    source.fill(0, 0, inputs);
    EXPECT_EQ(tokens, (Numbers{6, 7, 8, 9, 0}));
    EXPECT_EQ(targets, (Numbers{-1, 8, 9, -1, -1}));
    EXPECT_EQ(documents, (Numbers{0, 0, 0, 0, 1}));
    EXPECT_EQ(positions, (Numbers{0, 1, 2, 3, 0}));
    source.fill(0, 1, inputs);
    EXPECT_EQ(tokens, (Numbers{1, 2, 3, 4, 5}));
    EXPECT_EQ(targets, (Numbers{-1, 3, -1, 5, -1}));
    EXPECT_EQ(documents, (Numbers{0, 0, 0, 1, 1}));
    EXPECT_EQ(positions, (Numbers{0, 1, 2, 0, 1}));
    EXPECT_EQ(source.counted(0), 4u);
    EXPECT_EQ(counted, (std::vector<float>{2}));
    EXPECT_EQ(source.steps_per_epoch(), 1u);
    const PackedChats all(set, {0, 9}, 5, {.batch = 4, .all = true});
    EXPECT_EQ(all.steps_per_epoch(), 1u);
    EXPECT_EQ(all.counted(0), 4u);
}

TEST(SplitChats, EqualChatsStayOnOneSide) {
    const TemporaryDirectory directory;
    std::string lines;
    for (int i = 0; i < 60; ++i)
        lines += R"({"messages": [{"role": "assistant", "content": ")" + std::to_string(i % 30) + "\"}]}\n";
    write_chats(directory / "c.jsonl", lines);
    ThreadPool pool(1);
    const Tokenizer tokenizer = tokenizer_of_bytes();
    Corpus corpus{.stream = TokenStream(std::vector<std::int32_t>{}, "c.jsonl")};
    corpus.chats = std::make_unique<ChatSet>(
        read_chat_set({.files = {directory / "c.jsonl"}, .longest = 100}, tokenizer, pool));
    const TokenSplit split = split_chats(corpus, false);
    EXPECT_EQ(split.validation.end, corpus.chats->tokens.size());
    EXPECT_GT(split.validation.size(), 0u);
    std::map<std::uint64_t, std::set<bool>> sides;
    for (std::uint64_t chat = 0; chat < corpus.chats->chats(); ++chat)
        sides[corpus.chats->names[chat]].insert(corpus.chats->starts[chat] >= split.validation.begin);
    EXPECT_EQ(sides.size(), 30u);
    for (const auto& [name, side] : sides) EXPECT_EQ(side.size(), 1u);
    const TokenSplit last = split_chats(corpus, true);
    EXPECT_EQ(last.validation.end - last.validation.begin, corpus.chats->tokens.size() - last.train.size());
}

// Ids, masks, and positions of what TRL's collator packs.
TEST(ChatsAgainstTransformers, IdsMasksAndPackedPositions) {
    const Json all = Json::parse(
        read_file(std::string(MANTISSA_SOURCE_DIR) + "/tests/data/chat/packed_chats_fixture.json"));
    const testing::TextIds kinds;
    for (const Json& family : all["families"]) {
        const testing::TokenizerOfFixture& kind = kinds.named(family["tokenizer"]);
        TokenizerParts parts = read_tokenizer_json({kind.json, kind.name});
        parts.files["chat_template.jinja"] = family["template"].get<std::string>();
        parts.files["tokenizer_config.json"] = kind.config;
        const Tokenizer tokenizer(std::move(parts));
        const ChatEncoder encoder(tokenizer);
        ChatSet set{.starts = {0}};
        for (const Json& line : family["chats"]) {
            const EncodedChat chat =
                encoder.encode(parse_chats(line["record"].get<std::string>(), "c").chats[0]);
            EXPECT_EQ(Json(chat.tokens), line["ids"]) << kind.name << " " << line["record"];
            EXPECT_EQ(Json(chat.trained), line["mask"]) << kind.name << " " << line["record"];
            set.tokens.insert(set.tokens.end(), chat.tokens.begin(), chat.tokens.end());
            set.trained.insert(set.trained.end(), chat.trained.begin(), chat.trained.end());
            set.starts.push_back(set.tokens.size());
            set.names.push_back(set.names.size());
        }
        const std::int64_t T = all["sequence"];
        const auto size = static_cast<std::size_t>(T);
        const PackedChats source(set, {0, set.tokens.size()}, T, {.batch = 1, .all = true});
        const auto packs = pack_chats(set, {0, set.tokens.size()}, T);
        ASSERT_EQ(Json(packs), family["packs"]) << kind.name;
        for (std::size_t step = 0; step < packs.size(); ++step) {
            std::vector<std::int32_t> tokens(size), targets(size), documents(size), positions(size);
            std::vector<float> counted(1);
            source.fill(step, 0,
                        std::vector<std::span<std::byte>>{std::as_writable_bytes(std::span(tokens)),
                                                          std::as_writable_bytes(std::span(targets)),
                                                          std::as_writable_bytes(std::span(documents)),
                                                          std::as_writable_bytes(std::span(positions)),
                                                          std::as_writable_bytes(std::span(counted))});
            const Json& collated = family["collated"][step];
            const std::size_t there = collated["input_ids"].size();
            for (std::size_t i = 0; i < there; ++i) {
                EXPECT_EQ(tokens[i], collated["input_ids"][i].get<std::int32_t>());
                EXPECT_EQ(positions[i], collated["position_ids"][i].get<std::int32_t>());
                // Their model shifts the labels by one.
                const std::int32_t label =
                    i + 1 < there ? collated["labels"][i + 1].get<std::int32_t>() : -100;
                EXPECT_EQ(targets[i], std::max(label, -1)) << kind.name << " " << step << " " << i;
            }
        }
    }
}

}  // namespace mantissa
