// Texts by the command: several at once, stop words, and what is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

struct Model {
    TemporaryDirectory directory;
    std::string generate;

    Model() {
        const std::string place = (directory / "ck").string();
        EXPECT_EQ(run("train --model gpt2-tiny --layers 1 --heads 2 --channels 32 --context 32 --batch 8 "
                      "--steps 30 --text " +
                      testing::write_sentences(directory / "my.txt") + " --checkpoint " + place)
                      .status,
                  0);
        generate = "generate --quiet --checkpoint " + place + " --policy fp32 ";
    }
    nlohmann::json json(const std::string& options) const {
        const std::string file = (directory / "out.json").string();
        const Ran ran = run(generate + options + " --json " + file);
        EXPECT_EQ(ran.status, 0) << ran.output;
        return nlohmann::json::parse(std::ifstream(file));
    }
};

TEST(GenerateCommand, SeveralTextsAreThoseThatEachIsAlone) {
    const Model model;
    std::ofstream(model.directory / "prompts") << "the cat\n\nsaw\non the mat and\n";
    const std::string sampling = "--length 9 --temperature 0.8 --top-p 0.9 --seed 3 ";
    const nlohmann::json all =
        model.json(sampling + "--samples 2 --batch 4 --prompts " + (model.directory / "prompts").string());
    ASSERT_EQ(all["texts"].size(), 6u);
    EXPECT_EQ(all["texts_at_once"], 4);
    for (const std::size_t i : {0u, 2u, 5u}) {
        const nlohmann::json& text = all["texts"][i];
        EXPECT_EQ(text["seed"], 3 + i % 2);
        const nlohmann::json alone =
            model.json("--length 9 --temperature 0.8 --top-p 0.9 --seed " + std::to_string(3 + i % 2) +
                       " --prompt \"" + text["prompt"].get<std::string>() + "\"");
        EXPECT_EQ(alone["text"], text["text"]);
        EXPECT_EQ(alone["tokens"], text["tokens"]);
        // One form for one and for several.
        EXPECT_EQ(alone["texts"].size(), 1u);
        EXPECT_EQ(alone["texts"][0]["tokens"], text["tokens"]);
        EXPECT_EQ(alone["texts_at_once"], 1);
    }
    const Ran printed =
        run(model.generate + sampling + "--prompts " + (model.directory / "prompts").string());
    EXPECT_NE(printed.output.find("\n----\nsaw"), std::string::npos) << printed.output;
}

TEST(GenerateCommand, TextsEndBeforeAStopSequence) {
    const Model model;
    const nlohmann::json whole = model.json("--length 20 --temperature 0 --prompt the");
    const std::string text = whole["text"];
    ASSERT_EQ(whole["ended_by"], "length");
    const std::string word = text.substr(7, 3);
    const nlohmann::json stopped =
        model.json("--length 20 --temperature 0 --prompt the --stop never --stop \"" + word + "\"");
    EXPECT_EQ(stopped["ended_by"], "stop");
    EXPECT_EQ(stopped["text"], text.substr(0, text.find(word)));
}

TEST(GenerateCommand, OneTokenHasNoRate) {
    const Model model;
    std::string loud = model.generate;
    loud.erase(loud.find("--quiet "), 8);
    const Ran ran = run(loud + "--length 1 --prompt the");
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.output.find("fp32: 1 token, after a prompt of "), std::string::npos) << ran.output;
}

TEST(GenerateCommand, BadTextOptionsAreNamed) {
    const Model model;
    std::ofstream(model.directory / "none") << "\n\n";
    const std::pair<std::string, std::string> inputs[] = {
        {"--prompt x --top-p 0", "--top-p: top-p must lie above 0 and be 1 (all) at most, got 0"},
        {"--prompt x --top-p 1.5", "--top-p: top-p must lie above 0 and be 1 (all) at most, got 1.5"},
        {"--prompt x --min-p 2", "--min-p: min-p must lie between 0 (all) and 1, got 2"},
        {"--prompt x --repetition-penalty 0",
         "--repetition-penalty: the repetition penalty must be above 0, 1 for none, got 0"},
        {"--prompt x --prompts .", "--prompt, --prompts and --chat: give one of them"},
        {"--prompt x --batch 0", "--batch must be 1 text or more, got 0"},
        {"--prompt x --samples 0", "--samples must be 1 text or more, got 0"},
        {"--prompt " + std::string(40, 'a'), "--prompt: the prompt has 40 tokens, "},
    };
    for (const auto& [given, says] : inputs) {
        const Ran ran = run(model.generate + given);
        EXPECT_EQ(ran.status, 2) << given << ": " << ran.output;
        EXPECT_EQ(ran.output.rfind("mantissa: " + says, 0), 0u) << given << ": " << ran.output;
    }
    const Ran none = run(model.generate + "--prompts " + (model.directory / "none").string());
    EXPECT_EQ(none.status, 1);
    EXPECT_NE(last_line(none.output).find("none: holds no prompt; expected one a line"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
