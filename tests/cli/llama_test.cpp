// LLaMA by the commands: trained, stopped, resumed, continued, explained, linted, looked at.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/cli/written_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

constexpr const char* sizes =
    "--model llama-tiny --layers 2 --heads 6 --channels 96 --context 32 --vocabulary 300 ";

std::string train_llama(const TemporaryDirectory& directory) {
    return "train --batch 2 --sequence 16 --text " + testing::write_sentences(directory / "my.txt") + " " +
           sizes;
}

/// The text between two words of it.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
    const std::size_t begin = text.rfind(from);
    if (begin == text.npos) return "";
    return text.substr(begin, text.find(to, begin) - begin);
}

TEST(LlamaCommands, IsTrainedResumedAndContinuedInEveryFormat) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), whole = (directory / "whole").string();
    const Ran straight = run(train_llama(directory) + "--steps 6 --checkpoint " + whole);
    ASSERT_EQ(straight.status, 0) << straight.output;
    EXPECT_NE(straight.output.find("llama-2x96, "), std::string::npos) << straight.output;
    ASSERT_EQ(run(train_llama(directory) + "--steps 3 --checkpoint " + place).status, 0);
    const Ran resumed = run("train --resume " + place + " --steps 6 --checkpoint " + place);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(between(resumed.output, "step     5", "| norm"),
              between(straight.output, "step     5", "| norm"));
    std::string greedy;
    for (const char* policy : {"fp32", "bf16", "int8", "int4"}) {
        const Ran generated = run("generate --checkpoint " + place +
                                  " --prompt \"the cat\" --length 12 "
                                  "--temperature 0 --policy " +
                                  policy);
        EXPECT_EQ(generated.status, 0) << policy << ": " << generated.output;
        EXPECT_NE(generated.output.find("the cat"), std::string::npos) << generated.output;
    }
}

TEST(LlamaCommands, GoesOnWithMuonToTheSameLosses) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string(), muon = "--optimizer muon --learning-rate 2e-3 ";
    const Ran straight = run(train_llama(directory) + muon + "--steps 6 --profile");
    ASSERT_EQ(straight.status, 0) << straight.output;
    ASSERT_EQ(run(train_llama(directory) + muon + "--steps 3 --checkpoint " + place).status, 0);
    const Ran resumed = run("train --resume " + place + " --steps 6");
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_EQ(between(resumed.output, "step     5", "| norm"),
              between(straight.output, "step     5", "| norm"));
    // Its contractions are in the profile.
    EXPECT_TRUE(std::regex_search(straight.output, std::regex("\nmatmul +update "))) << straight.output;
    const Ran other = run("train --resume " + place + " --optimizer adamw --steps 6");
    EXPECT_NE(other.status, 0) << other.output;
}

TEST(LlamaCommands, IsExplainedLintedAndLookedAt) {
    for (const char* command : {"explain", "lint", "numerics --steps 2"}) {
        const Ran ran = run(std::string(command) + " " + sizes + "--batch 2 --sequence 16");
        EXPECT_EQ(ran.status, 0) << command << ": " << ran.output;
    }
}

TEST(LlamaCommands, WhatDoesNotFitIsRefusedInOneLine) {
    const auto refused = [](const std::string& options, const std::string& part) {
        const Ran ran = run("train --steps 1 --model llama-tiny " + options);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(last_line(ran.output).find(part), std::string::npos) << ran.output;
    };
    refused("--dropout 0.1", "llama-tiny: has no dropout, got 0.1");
    refused("--heads 5", "128 channels cannot be shared by 5 heads");
    refused("--sequence 1000", "a context of 256 tokens, a sequence of 1000 does not fit");
}

TEST(LlamaCommands, ATokenizerLargerThanTheModelIsRefused) {
    const TemporaryDirectory directory;
    const std::string place = (directory / "ck").string();
    ASSERT_EQ(run(train_llama(directory) + "--steps 1 --checkpoint " + place).status, 0);
    const std::string tokenizer = (directory / "tok").string();
    ASSERT_EQ(
        run("tokenize --vocabulary 320 --train " + (directory / "my.txt").string() + " --out " + tokenizer)
            .status,
        0);
    const Ran ran = run("generate --prompt the --checkpoint " + place + " --tokenizer " + tokenizer);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(last_line(ran.output).find("has 320 tokens, the vocabulary of ck only 300"), std::string::npos)
        << ran.output;
}

}  // namespace
}  // namespace mantissa
