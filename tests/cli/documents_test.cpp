// Packed documents from the command line: a text becomes tokens whose documents are told apart, and every
// command that trains takes them.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::quoted;
using testing::Ran;
using testing::run;

class DocumentsCommand : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        directory_ = new TemporaryDirectory;
        std::ofstream text(*directory_ / "text.txt");
        for (int i = 0; i < 200; ++i)
            text << "Document " << i << " has " << i * i % 17 << " words. <|endoftext|>\n";
        text.close();
        EXPECT_EQ(
            run("tokenize --train " + file("text.txt") + " --vocabulary 300 --out " + file("tok")).status, 0);
    }
    static void TearDownTestSuite() { delete directory_; }

    static std::string file(const char* name) { return quoted((*directory_ / name).string()); }
    static std::string text() { return " --text " + file("text.txt") + " --tokenizer " + file("tok"); }
    /// The rest of a log when times are cut off.
    static std::string losses(const char* log) {
        std::ifstream lines(*directory_ / log);
        std::string all;
        for (std::string line; std::getline(lines, line);) all += line.substr(0, line.find("\"ms\"")) + "\n";
        return all;
    }

    static constexpr const char* small = " --batch 2 --sequence 48 --documents packed --quiet ";
    static TemporaryDirectory* directory_;
};

TemporaryDirectory* DocumentsCommand::directory_ = nullptr;

TEST_F(DocumentsCommand, TokensAreWhatTheTextIs) {
    const Ran encoded = run("tokenize --encode " + file("text.txt") + " --tokenizer " + file("tok") +
                            " --documents --out " + file("shard.bin"));
    EXPECT_EQ(encoded.status, 0) << encoded.output;
    const std::string options = std::string(small) + "--steps 2 --log ";
    const Ran of_text = run("train" + text() + options + file("text.log"));
    EXPECT_EQ(of_text.status, 0) << of_text.output;
    EXPECT_NE(of_text.output.find("in 200 documents"), std::string::npos) << of_text.output;
    const Ran of_tokens = run("train --tokens " + file("shard.bin") + " --tokenizer " + file("tok") +
                              options + file("tokens.log"));
    EXPECT_EQ(of_tokens.status, 0) << of_tokens.output;
    EXPECT_NE(losses("text.log"), "");
    EXPECT_EQ(losses("text.log"), losses("tokens.log"));
}

TEST_F(DocumentsCommand, EveryCommandThatTrainsTakesThem) {
    const std::string options = text() + small;
    for (const std::string& command :
         {"train --model llama-tiny --steps 2 --validate-every 2" + options,
          "ladder --model gpt2-tiny --rungs fp32,flash,loss --steps 1 --repeats 1 --text " +
              file("text.txt") + small,
          "numerics --model llama-tiny --steps 1" + options,
          "numerics converge --policies fp32,bf16 --seeds 1 --tolerance 1 --steps 2" + options,
          std::string("explain --model gpt2-tiny --nodes") + small}) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, 0) << command << "\n" << ran.output;
    }
}

TEST_F(DocumentsCommand, AResumedRunStaysAsItWas) {
    const std::string begin = "train" + text() + small + "--steps ";
    const Ran whole = run(begin + "4 --log " + file("whole.log"));
    EXPECT_EQ(whole.status, 0) << whole.output;
    EXPECT_EQ(run(begin + "2 --log " + file("parts.log") + " --checkpoint " + file("saved")).status, 0);
    const std::string again =
        "train --resume " + file("saved") + " --steps 4 --quiet --log " + file("parts.log");
    const Ran refused = run(again + " --documents joined");
    EXPECT_NE(refused.status, 0);
    EXPECT_NE(refused.output.find("documents"), std::string::npos) << refused.output;
    const Ran resumed = run(again);
    EXPECT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(losses("parts.log"), losses("whole.log"));
}

TEST_F(DocumentsCommand, WhatDoesNotFitIsNamed) {
    const auto words = [](const std::string& arguments) {
        const Ran ran = run(arguments);
        EXPECT_NE(ran.status, 0) << arguments;
        return last_line(ran.output);
    };
    EXPECT_EQ(words("train --documents packs --text " + file("text.txt")),
              "mantissa: --documents packs: expected joined or packed");
    EXPECT_EQ(
        words("train --documents packed --text " + file("text.txt")),
        "mantissa: packed documents end at the tokenizer's end-of-text token, and there is no tokenizer; "
        "give it as --tokenizer DIR");
    EXPECT_EQ(run("tokenize --special-tokens text --encode " + file("text.txt") + " --tokenizer " +
                  file("tok") + " --out " + file("plain.bin"))
                  .status,
              0);
    const std::string plain =
        words("train --documents packed --tokens " + file("plain.bin") + " --tokenizer " + file("tok"));
    EXPECT_NE(plain.find("plain.bin: documents end at token"), std::string::npos) << plain;
    EXPECT_NE(plain.find("was it tokenized without marks between documents"), std::string::npos) << plain;
    EXPECT_EQ(words("explain --model ResNet20 --documents packed"),
              "mantissa: --model ResNet20: trains on images, of which there are no --documents");
    EXPECT_EQ(words("tokenize --train " + file("text.txt") + " --documents --out " + file("other")),
              "mantissa: --documents belongs to --encode and --count; leave it out");
}

}  // namespace
}  // namespace mantissa
