// "-" and streams: what is read from standard input, written to standard output, and never ends.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::program;
using testing::Ran;
using testing::run;
using testing::run_in_shell;

/// A folder with a text and a tokenizer of it.
struct TokenizerFolder {
    TokenizerFolder() {
        std::ofstream(text) << "the cat sat on the mat, and the other cat, too";
        EXPECT_EQ(run("tokenize --train " + text + " --vocabulary 260 --quiet --out " + tokenizer).status, 0);
    }

    std::string place(const std::string& name) const { return (directory / name).string(); }

    TemporaryDirectory directory;
    std::string text = place("text.txt"), tokenizer = place("tok");
};

TEST(Streams, PrintedIdsAreDecodedFromAFileAndFromStandardInput) {
    const TokenizerFolder work;
    const std::string with = " --tokenizer " + work.tokenizer, ids = work.place("ids.txt");
    const std::string encode = program + " tokenize --encode " + work.text + with;
    const std::string text = "the cat sat on the mat, and the other cat, too";
    ASSERT_EQ(run_in_shell(encode + " > " + ids).status, 0);
    EXPECT_EQ(run("tokenize --decode " + ids + with).output, text);
    EXPECT_EQ(run_in_shell(encode + " | " + program + " tokenize --decode -" + with).output, text);
    const Ran ran = run("tokenize --decode " + work.text + with);
    EXPECT_EQ(ran.status, 1);
    EXPECT_EQ(last_line(ran.output).find("mantissa: " + work.text + ": is text, but no token ids; expected"),
              0u)
        << ran.output;
}

TEST(Streams, WhatNeverEndsIsNotReadForever) {
    const TokenizerFolder work;
    const Ran ran =
        run_in_shell(program + " tokenize --count /dev/zero --tokenizer " + work.tokenizer, /*seconds=*/20);
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_EQ(last_line(ran.output),
              "mantissa: /dev/zero: is binary (byte 0 is zero); expected text in UTF-8");
}

TEST(Streams, ALogOnStandardOutputStandsAlone) {
    const TokenizerFolder work;
    const std::string train =
        "train --layers 1 --heads 2 --channels 16 --context 8 --vocabulary 256 --batch 2 --threads 1 --steps "
        "3 "
        "--text " +
        work.text + " --log -";
    const TemporaryDirectory elsewhere;
    const Ran ran =
        run_in_shell("cd " + elsewhere.path().string() + " && (" + program + " " + train + " 2>/dev/null)");
    EXPECT_EQ(ran.status, 0) << ran.output;
    std::istringstream lines(ran.output);
    std::int64_t steps = 0;
    for (std::string line; std::getline(lines, line); ++steps)
        EXPECT_EQ(nlohmann::json::parse(line)["step"], steps) << line;
    EXPECT_EQ(steps, 3);
    EXPECT_TRUE(std::filesystem::is_empty(elsewhere.path()));
    EXPECT_EQ(run(train + " --json -").status, 2);
}

TEST(Streams, APromptMayComeFromStandardInput) {
    const TokenizerFolder work;
    const std::string kept = work.place("kept");
    ASSERT_EQ(
        run("train --layers 1 --heads 2 --channels 16 --context 32 --vocabulary 256 --batch 1 --threads 1 "
            "--steps 1 --quiet --text " +
            work.text + " --sequence 8 --checkpoint " + kept)
            .status,
        0);
    const std::string rest = " --length 3 --quiet --seed 1 --threads 1 --checkpoint " + kept;
    const Ran typed = run("generate --prompt 'the cat'" + rest);
    EXPECT_EQ(typed.status, 0) << typed.output;
    EXPECT_EQ(run_in_shell("echo the cat | " + program + " generate --prompt -" + rest).output, typed.output);
}

}  // namespace
}  // namespace mantissa
