// Chats from the command line: shown, trained on, resumed, and answered.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/base/file.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/train/generator.h"
#include "tests/cli/run_program.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text_ids_fixture.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::last_line;
using testing::Ran;
using testing::run;

constexpr const char* chat_ml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

class ChatsCommand : public ::testing::Test {
  protected:
    ChatsCommand() {
        const testing::TextIds kinds;
        const auto& kind = kinds.named("gpt2 chat");
        std::filesystem::create_directories(directory_ / "tok");
        write("tok/tokenizer.json", kind.json);
        write("tok/tokenizer_config.json", kind.config);
        write("tok/chat_template.jinja", chat_ml);
        std::string lines;
        for (int i = 0; i < 30; ++i)
            lines += chat("say " + std::to_string(i), "the cat " + std::to_string(i));
        write("chats.jsonl", lines);
    }
    static std::string chat(const std::string& question, const std::string& answer) {
        return json{{"messages",
                     {{{"role", "user"}, {"content", question}},
                      {{"role", "assistant"}, {"content", answer}}}}}
                   .dump() +
               "\n";
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(directory_ / name) << text;
    }
    std::string at(const std::string& name) const { return (directory_ / name).string(); }
    std::string succeed(const std::string& arguments) const {
        const Ran ran = run(arguments);
        EXPECT_EQ(ran.status, 0) << arguments << "\n" << ran.output;
        return ran.output;
    }
    std::string refusal(const std::string& arguments) const {
        const Ran ran = run(arguments);
        EXPECT_NE(ran.status, 0) << arguments << "\n" << ran.output;
        return last_line(ran.output);
    }
    std::string small() const {
        return "train --layers 1 --heads 2 --channels 32 --context 96 --policy fp32 "
               "--batch 2 "
               "--quiet --tokenizer " +
               at("tok");
    }
    /// A log without times.
    std::string losses(const std::string& name) const {
        std::ifstream lines(directory_ / name);
        std::string all;
        for (std::string line; std::getline(lines, line);) all += line.substr(0, line.find("\"ms\"")) + "\n";
        return all;
    }

    TemporaryDirectory directory_;
};

TEST_F(ChatsCommand, AreShownAsTheyAreTrained) {
    write("two.jsonl", chat("a", "b") + chat("<|im_end|>", ""));
    const std::string shown = succeed("tokenize --chats " + at("two.jsonl") + " --tokenizer " + at("tok") +
                                      " --show 2 --json " + at("out.json"));
    EXPECT_NE(shown.find("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n"),
              std::string::npos)
        << shown;
    EXPECT_NE(shown.find("<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n"),
              std::string::npos)
        << shown;
    EXPECT_NE(shown.find("two.jsonl (messages): 2 chats; 3 of "), std::string::npos) << shown;
    const json out = json::parse(read_file(directory_ / "out.json"));
    EXPECT_EQ(out["targets"], 3);
    EXPECT_EQ(out["shown"][0]["tokens"].size(), out["shown"][0]["trained"].size());
    EXPECT_EQ(refusal("tokenize --count " + at("two.jsonl") + " --show 1 --tokenizer " + at("tok")),
              "mantissa: --show belongs to --chats; leave it out");
}

TEST_F(ChatsCommand, TrainAndGoOn) {
    const std::string data = " --chats " + at("chats.jsonl") + " --validate-every 2 ";
    const std::string said = succeed(small() + data + "--steps 4 --log " + at("whole.log") + " --html " +
                                     at("page.html") + " --checkpoint " + at("whole"));
    EXPECT_NE(said.find("chats.jsonl (messages): 30 chats; "), std::string::npos) << said;
    EXPECT_NE(said.find("held out: "), std::string::npos) << said;
    const std::string page = read_file(directory_ / "page.html");
    EXPECT_NE(page.find("<mark>the cat"), std::string::npos);
    EXPECT_EQ(read_file(directory_ / "whole/chat_template.jinja"), chat_ml);
    succeed(small() + data + "--steps 2 --log " + at("half.log") + " --checkpoint " + at("half"));
    succeed("train --steps 4 --quiet --resume " + at("half"));
    EXPECT_NE(losses("whole.log"), "");
    EXPECT_EQ(losses("whole.log"), losses("half.log"));
    // Other files to validate on, and all tokens.
    const std::string other = succeed(small() + " --chats " + at("chats.jsonl") + " --validation " +
                                      at("chats.jsonl") + " --validate-every 1 --loss-on all --steps 1");
    EXPECT_NE(other.find("all of each chat"), std::string::npos) << other;
    EXPECT_NE(other.find("validated on chats.jsonl (messages)"), std::string::npos) << other;
}

TEST_F(ChatsCommand, WhatIsLearntIsAnswered) {
    write("one.jsonl", chat("who sat?", "the cat"));
    succeed(small() + " --chats " + at("one.jsonl") + " --steps 120 --learning-rate 0.01 --checkpoint " +
            at("m"));
    const std::string ask =
        "generate --checkpoint " + at("m") + " --quiet --policy fp32 --temperature 0 --chat ";
    write("ask.json", R"([{"role": "user", "content": "who sat?"}])");
    EXPECT_EQ(succeed(ask + at("ask.json")), "the cat\n");
    EXPECT_EQ(testing::run_in_shell("printf 'who sat?\\n' | " + testing::program + " " + ask + "-").output,
              "the cat\n");
    write("two.jsonl", R"({"messages": [{"role": "user", "content": "who sat?"}]})"
                       "\n"
                       R"({"messages": [{"role": "user", "content": "who sat?"}]})");
    EXPECT_EQ(succeed(ask + at("two.jsonl")), "the cat\n----\nthe cat\n");
    EXPECT_EQ(refusal(ask + at("one.jsonl")),
              "mantissa: " + at("one.jsonl") +
                  ": line 1: ends with an answer, and the model is to write one; take it away");
    const auto device = make_cpu_device({.threads = 1});
    Generator generator(*device, at("m"));
    const TextOptions likeliest{.sampling = {.temperature = 0}};
    EXPECT_EQ(generator.answer(R"([{"role": "user", "content": "who sat?"}])", likeliest), "the cat");
    EXPECT_EQ(testing::error_of([&] { generator.answer(R"({"text": "a"})", likeliest); }),
              "the chat: line 1: is a text, and no conversation of messages");
    // A token that a user spells is letters, so the model sees another question.
    succeed(ask + at("ask.json") + " --system '<|im_end|>'");
}

TEST_F(ChatsCommand, WrongUseIsRefused) {
    const std::string data = " --chats " + at("chats.jsonl") + " --steps 1";
    EXPECT_EQ(
        refusal(small() + data + " --documents packed"),
        "mantissa: --documents belongs to --text and --tokens: chats are packed, and their template writes "
        "the special tokens; leave it out");
    EXPECT_EQ(refusal(small() + data + " --text " + at("chats.jsonl")),
              "mantissa: --chats excludes --text and --tokens; give one of them");
    EXPECT_EQ(refusal(small() + " --steps 1 --text " + at("chats.jsonl") + " --loss-on all"),
              "mantissa: --loss-on belongs to --chats; give these, or leave it out");
    EXPECT_EQ(refusal("train --steps 1 --chats " + at("chats.jsonl")),
              "mantissa: chats become tokens by the tokenizer of a model and its template; give it as "
              "--tokenizer DIR");
    EXPECT_EQ(refusal(small() + data + " --validate-every 1 --held-out each"),
              "mantissa: --held-out each: chats are kept whole; give name or last");
    // Files that are not there are named before anything else is looked at.
    for (const std::string option : {"--chats", "--text", "--tokens", "--validation", "--from", "--adapter"})
        EXPECT_EQ(refusal(small() + " --vocabulary 3 --steps 1 " + option + " nowhere"),
                  "mantissa: nowhere: does not exist");
    EXPECT_EQ(refusal("generate --checkpoint " + at("tok") + " --chat nowhere"),
              "mantissa: nowhere: does not exist");
    write("broken.jsonl", chat("a", "b") + "{\"messages\": [{]}\n");
    EXPECT_EQ(refusal(small() + " --steps 1 --chats " + at("broken.jsonl"))
                  .substr(0, at("broken.jsonl").size() + 39),
              "mantissa: " + at("broken.jsonl") + ": line 2: not JSON, at charac");
    const std::string as_text = succeed(small() + " --steps 1 --text " + at("chats.jsonl"));
    EXPECT_NE(as_text.find("chats.jsonl holds chats, which are read as text here"), std::string::npos)
        << as_text;
    write("tok/chat_template.jinja", "{{ raise_exception('no') }}");
    EXPECT_EQ(refusal(small() + data),
              "mantissa: " + at("chats.jsonl") +
                  ": line 1: chat_template.jinja: line 1: the template refuses it: no");
    std::filesystem::remove(directory_ / "tok/chat_template.jinja");
    EXPECT_NE(refusal(small() + data).find("chats need the template that the model writes them in"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
