// Files that a command line could destroy by a slip: it is refused before anything is done.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::last_line;
using testing::quoted;
using testing::Ran;
using testing::run;
using testing::run_in_shell;

/// A folder with a text, and how a very small model is trained on it.
struct TrainingFolder {
    TrainingFolder() { std::ofstream(text) << std::string(2000, 'x') << "the cat sat on the mat"; }

    std::string place(const std::string& name) const { return (directory / name).string(); }
    std::string train(const std::string& more, int vocabulary = 256) const {
        return "train --layers 1 --heads 2 --channels 16 --context 16 --batch 2 --threads 1 --quiet "
               "--vocabulary " +
               std::to_string(vocabulary) + " --text " + quoted(text) + " " + more;
    }

    TemporaryDirectory directory;
    std::string text = (directory / "text.txt").string();
};

TEST(KeptSafe, AnOutputThatIsAnInputIsRefused) {
    const TrainingFolder work;
    const std::string before = read_file(work.text);
    for (const char* option : {"--log", "--json", "--html", "--trace"}) {
        const Ran ran = run(work.train("--steps 1 " + std::string(option) + " " + work.text));
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find(std::string(option) + " " + work.text + ": that is what --text reads"),
                  std::string::npos)
            << ran.output;
        EXPECT_EQ(read_file(work.text), before);
    }
    const std::string log = work.place("log");
    EXPECT_NE(run(work.train("--steps 1 --log " + log + " --json " + log))
                  .output.find(": --log writes there, too; name another file"),
              std::string::npos);
}

TEST(KeptSafe, AnOutputInACheckpointIsRefused) {
    const TrainingFolder work;
    const std::string kept = work.place("kept");
    ASSERT_EQ(run(work.train("--steps 1 --checkpoint " + kept)).status, 0);
    const Ran ran = run("train --resume " + kept + " --steps 2 --quiet --log " + kept + "/log.jsonl");
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_FALSE(fs::exists(kept + "/log.jsonl"));
    EXPECT_EQ(run("train --resume " + kept + " --steps 2 --quiet").status, 0);
}

TEST(KeptSafe, WhatLiesWhereTheCheckpointBeforeGoesIsNotDeleted) {
    const TrainingFolder work;
    fs::create_directory(work.place("kept.previous"));
    std::ofstream(work.place("kept.previous/thesis.txt")) << "important";
    const Ran ran = run(work.train("--steps 2 --save-every 1 --checkpoint " + work.place("kept")));
    EXPECT_EQ(ran.status, 1) << ran.output;
    EXPECT_NE(ran.output.find("holds \"thesis.txt\", which is no part of a checkpoint"), std::string::npos);
    EXPECT_EQ(read_file(work.place("kept.previous/thesis.txt")), "important");
}

std::int64_t step_of_checkpoint(const std::string& checkpoint) {
    return nlohmann::json::parse(read_file(checkpoint + "/state.json"))["step"].get<std::int64_t>();
}

TEST(KeptSafe, WhatARunBeganFromStandsBesideItsFirstSave) {
    const TrainingFolder work;
    const std::string kept = work.place("kept");
    ASSERT_EQ(run(work.train("--steps 2 --save-every 1 --checkpoint " + kept)).status, 0);
    const Ran back = run("train --resume " + kept + ".previous --steps 3 --save-every 0");
    ASSERT_EQ(back.status, 0) << back.output;
    EXPECT_NE(back.output.find(kept + " as it was is now " + kept + ".aside"), std::string::npos);
    EXPECT_EQ(step_of_checkpoint(kept), 3);
    EXPECT_EQ(step_of_checkpoint(kept + ".previous"), 1);
    EXPECT_EQ(step_of_checkpoint(kept + ".aside"), 2);
    // Sent back by damage, it keeps what it was sent back to, and what is damaged, too.
    fs::resize_file(kept + "/model.safetensors", 1000);
    ASSERT_EQ(run("train --quiet --resume " + kept + " --steps 4").status, 0);
    EXPECT_EQ(step_of_checkpoint(kept), 4);
    EXPECT_EQ(step_of_checkpoint(kept + ".previous"), 1);
    EXPECT_EQ(step_of_checkpoint(kept + ".aside-2"), 3);
}

TEST(KeptSafe, ACheckpointThatIsRefusedIsAllThatIsSpokenOf) {
    const TrainingFolder work;
    const std::string kept = work.place("kept");
    ASSERT_EQ(run(work.train("--steps 1 --checkpoint " + kept)).status, 0);
    const Ran wider = run("train --resume " + kept + " --steps 2 --quiet --channels 32");
    EXPECT_EQ(wider.status, 1) << wider.output;
    EXPECT_EQ(wider.output.find("mantissa: " + kept + "/state.json: it was trained with"), 0u)
        << wider.output;
    fs::resize_file(kept + "/model.safetensors", 1000);
    const Ran cut = run("train --resume " + kept + " --steps 2 --quiet");
    EXPECT_EQ(cut.status, 1) << cut.output;
    EXPECT_EQ(cut.output.find("mantissa: " + kept + "/model.safetensors: damaged: 1000 bytes"), 0u)
        << cut.output;
}

TEST(KeptSafe, ASlipInAPathMakesNoFolders) {
    const TrainingFolder work;
    const std::string typo = work.place("typo");
    for (const auto& [command, status] :
         {std::pair{work.train("--steps 1 --checkpoint " + typo + "/run"), 1},
          {work.train("--steps 1 --dump " + typo + "/run"), 2},
          {"tokenize --train " + work.text + " --quiet --vocabulary 258 --out " + typo + "/run", 1}}) {
        const Ran ran = run(command);
        EXPECT_EQ(ran.status, status) << ran.output;
        EXPECT_NE(
            ran.output.find(typo + "/run: there is no folder " + typo + "; make it, or name another place"),
            std::string::npos)
            << ran.output;
        EXPECT_EQ(ran.output, last_line(ran.output) + "\n");
        EXPECT_FALSE(fs::exists(typo));
    }
    EXPECT_EQ(run(work.train("--steps 1 --checkpoint " + typo)).status, 0);
}

TEST(KeptSafe, ACheckpointKeepsTheTokenizerThatItLearnt) {
    const TrainingFolder work;
    const std::string own = work.place("own"), same = work.place("same"), other = work.place("other");
    const std::string tokenize = "tokenize --train " + work.text + " --quiet --vocabulary ";
    ASSERT_EQ(run(tokenize + "258 --out " + own).status, 0);
    ASSERT_EQ(run(tokenize + "258 --out " + same).status, 0);
    ASSERT_EQ(run(tokenize + "259 --out " + other).status, 0);
    const std::string kept = work.place("kept"), of_bytes = work.place("of_bytes");
    ASSERT_EQ(run(work.train("--steps 1 --tokenizer " + own + " --checkpoint " + kept, 300)).status, 0);
    ASSERT_EQ(run(work.train("--steps 1 --checkpoint " + of_bytes, 300)).status, 0);
    const std::string tokens = read_file(kept + "/tokenizer.json");
    EXPECT_EQ(run("train --quiet --steps 2 --resume " + kept + " --tokenizer " + same).status, 0);
    for (const std::string& place : {kept, of_bytes}) {
        const Ran ran = run("train --quiet --steps 3 --resume " + place + " --tokenizer " + other);
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find("--tokenizer " + other + ": " + place + " was trained "), std::string::npos)
            << ran.output;
    }
    EXPECT_EQ(read_file(kept + "/tokenizer.json"), tokens);
}

TEST(KeptSafe, ATokenizerIsTrainedOverNoOther) {
    const TrainingFolder work;
    const std::string own = work.place("own");
    const std::string tokenize = "tokenize --train " + work.text + " --out " + own + " --vocabulary ";
    ASSERT_EQ(run(tokenize + "258").status, 0);
    const std::string tokens = read_file(own + "/vocab.json");
    const Ran ran = run(tokenize + "259");
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_NE(ran.output.find("--out " + own + ": holds a tokenizer, with which texts"), std::string::npos)
        << ran.output;
    EXPECT_EQ(read_file(own + "/vocab.json"), tokens);
}

TEST(KeptSafe, TheNextSaveOfAnotherReplacesNoRun) {
    const TrainingFolder work;
    const std::string kept = work.place("kept");
    const Ran ran = run(work.train("--steps 1 --checkpoint " + kept + ".previous/"));
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_NE(ran.output.find("that is where a save of " + kept + " moves the checkpoint before it"),
              std::string::npos)
        << ran.output;
}

TEST(KeptSafe, ANameThatIsNotUtf8IsRefusedBeforeTheFirstStep) {
    const TrainingFolder work;
    const std::string text = work.place("t\xff.txt");
    fs::copy_file(work.text, text);
    const Ran ran = run(work.train("--steps 1 --tokenizer " + quoted(text)));
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.output.find("t\\xff.txt' is not UTF-8"), std::string::npos) << ran.output;
    // A prompt may be any bytes, and is no reason to lose what was trained.
    const std::string kept = work.place("kept");
    EXPECT_EQ(run(work.train("--steps 1 --sample-every 2 --prompt 'a\xff"
                             "b' --checkpoint " +
                             kept))
                  .status,
              0);
    EXPECT_EQ(run("train --resume " + kept + " --steps 2 --quiet").status, 0);
}

TEST(KeptSafe, EmptyValuesAndOctalNumbersAreRefused) {
    const TrainingFolder work;
    for (const char* option : {"--checkpoint", "--resume", "--from", "--policy", "--text"}) {
        const Ran ran = run(work.train("--steps 1 " + std::string(option) + " ''"));
        EXPECT_EQ(ran.status, 2) << option;
        EXPECT_NE(ran.output.find(std::string(option) + ": the value is empty"), std::string::npos)
            << ran.output;
    }
    EXPECT_NE(run(work.train("--steps 010")).output.find("--steps: 010 begins with a zero"),
              std::string::npos);
}

TEST(KeptSafe, ACheckpointBehindALinkStaysThere) {
    const TrainingFolder work;
    fs::create_directory(work.place("large"));
    ASSERT_EQ(run(work.train("--steps 1 --checkpoint " + work.place("large/run"))).status, 0);
    fs::create_symlink("large/run", work.place("link"));
    ASSERT_EQ(run("train --resume " + work.place("link") + " --steps 3 --quiet").status, 0);
    EXPECT_TRUE(fs::is_symlink(work.place("link")));
    EXPECT_NE(read_file(work.place("large/run/state.json")).find("\"step\": 3"), std::string::npos)
        << read_file(work.place("large/run/state.json"));
    fs::create_symlink("nowhere/run", work.place("dangling"));
    const Ran ran = run(work.train("--steps 1 --checkpoint " + work.place("dangling")));
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_NE(ran.output.find("is a link to nowhere/run, which is not there"), std::string::npos);
}

TEST(KeptSafe, ACutLineOfALogGoesBeforeLinesAreAdded) {
    const TrainingFolder work;
    const std::string kept = work.place("kept"), log = work.place("log.jsonl");
    ASSERT_EQ(run(work.train("--steps 2 --checkpoint " + kept + " --log " + log)).status, 0);
    std::ofstream(log, std::ios::app) << R"({"step": 2, "lo)";
    ASSERT_EQ(run("train --resume " + kept + " --steps 4 --quiet --log " + log).status, 0);
    std::ifstream lines(log);
    std::int64_t step = 0;
    for (std::string line; std::getline(lines, line); ++step)
        EXPECT_EQ(nlohmann::json::parse(line)["step"], step) << line;
    EXPECT_EQ(step, 4);
}

TEST(KeptSafe, ClosedAndFullStandardStreamsAreNoReasonToStop) {
    const TrainingFolder work;
    const std::string program = std::string("(") + MANTISSA_BINARY_DIR + "/mantissa ";
    EXPECT_EQ(run_in_shell(program + work.train("--steps 2") + " 2>&-)").status, 0);
    EXPECT_EQ(run_in_shell(program + work.train("--steps 2") + " 2>/dev/full)").status, 0);
    EXPECT_EQ(run_in_shell(program + "train --stpes 2 2>&-)").status, 2);
    // Output that nobody got is no success, and said of standard output, whoever notices first.
    for (const char* much_and_little : {"explain --model gpt2-tiny", "peaks --of a100"}) {
        const Ran ran = run_in_shell(program + much_and_little + " 2>&1 >/dev/full)");
        EXPECT_EQ(ran.status, 1);
        EXPECT_EQ(last_line(ran.output),
                  "mantissa: standard output cannot be written (No space left on device); what was printed "
                  "there is not whole");
    }
    // The log is not what standard output was.
    const std::string log = work.place("log.jsonl");
    EXPECT_EQ(run_in_shell(program + work.train("--steps 2 --log " + log) + " <&- >&-)").status, 0);
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

TEST(KeptSafe, JsonOnStandardOutputStandsAlone) {
    const TrainingFolder work;
    const std::string program = std::string("(") + MANTISSA_BINARY_DIR + "/mantissa ";
    for (const std::string& command :
         {work.train("--steps 2 --json -"), std::string("peaks --of a100 --json=-")}) {
        const Ran ran = run_in_shell(program + command + " 2>/dev/null)");
        EXPECT_TRUE(nlohmann::json::accept(ran.output)) << ran.output;
    }
}

}  // namespace
}  // namespace mantissa
