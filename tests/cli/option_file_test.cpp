// Options from a file, sections of the help, and the manual page.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "tests/cli/run_program.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::Ran;
using testing::run;

class OptionFile : public ::testing::Test {
  protected:
    /// The words that name a file with this text.
    std::string file(const std::string& text) {
        const auto path = folder_ / "options.toml";
        std::ofstream(path) << text;
        return " --config " + path.string();
    }

    TemporaryDirectory folder_;
};

/// `explain` of the same sizes in words.
Ran explained(const std::string& options) {
    std::string words = "explain --layers 1 --channels 16 --heads 2 --context 8 --batch 1 ";
    words += options;
    return run(words);
}

/// The same in lines of a file, and more of them.
std::string small_and(const char* more) {
    std::string text = "layers = 1\nchannels = 16\nheads = 2\ncontext = 8\nbatch = 1\n";
    text += more;
    return text;
}

TEST_F(OptionFile, SaysWhatWordsWouldSay) {
    const Ran by_file = run("explain" + file(small_and("policy = \"bf16\"\nquiet = true\n")));
    const Ran by_words = explained("--policy bf16 --quiet");
    EXPECT_EQ(by_file.status, 0) << by_file.output;
    EXPECT_EQ(by_file.output, by_words.output);
}

TEST_F(OptionFile, TakesNamesAsTheyAreTypedAndNamesBothLinesOfOne) {
    const Ran ran = run("explain" + file(small_and("--policy = bf16\n")));
    EXPECT_EQ(ran.output, explained("--policy bf16").output);
    const Ran twice = run("explain" + file(small_and("layers = 2\n")));
    EXPECT_NE(twice.output.find(", lines 1 and 6: layers takes 1 value, got 2\n"), std::string::npos)
        << twice.output;
}

TEST_F(OptionFile, WhatIsTypedCountsInstead) {
    const std::string options = file(small_and("policy = \"bf16\"\n"));
    EXPECT_EQ(run("explain --policy=fp32" + options).output, explained("--policy fp32").output);
}

TEST_F(OptionFile, ASectionIsOfItsCommandAlone) {
    const std::string options = file("[explain]\nlayers = 1\nchannels = 16\nheads = 2\n[train]\nsteps = 7\n");
    const Ran ran = run("explain --context 8 --batch 1" + options);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_EQ(ran.output, explained("").output);
}

TEST_F(OptionFile, SeveralValuesStandInBrackets) {
    const Ran ran = run("train --steps 1" + file("betas = [0.9, 2]\n"));
    EXPECT_EQ(ran.status, 2) << ran.output;
    EXPECT_NE(last_line(ran.output).find("--betas"), std::string::npos) << ran.output;
    EXPECT_NE(last_line(ran.output).find(last_line(run("train --steps 1 --betas 0.9 2").output).substr(10)),
              std::string::npos)
        << ran.output;  // behind the file and the line
}

TEST_F(OptionFile, QuotesKeepWhatIsWithinThem) {
    const auto named = [&](const char* line) {
        return last_line(run("train --steps 1" + file(std::string(line) + "  # a comment\n")).output);
    };
    EXPECT_NE(named("text = \"a #1, b.txt\"").find("a #1, b.txt"), std::string::npos);
    EXPECT_NE(named("'text' = 'it is [x] = y'").find("it is [x] = y"), std::string::npos);
    EXPECT_NE(named("text = \"it's\" \"a, b\"").find("it's"), std::string::npos);
    EXPECT_NE(named("text = " MANTISSA_SOURCE_DIR "/LICENSE \"a, b\" c").find("a, b"), std::string::npos);
    EXPECT_NE(named("text = [\"it's.txt\", ]").find("it's.txt"), std::string::npos);
}

TEST_F(OptionFile, LinesAreOfTheFormsThatTheyAlwaysHad) {
    const Ran by_words = explained("--policy bf16 --quiet");
    for (const char* more :
         {"policy=bf16\nquiet\n", "\tpolicy = 'bf16'\nquiet = true # all\n; old comments\n",
          "explain.policy = bf16\n[explain]\nquiet = \"true\"\n",
          "policy = [\n\"bf16\" # the one\n]\nquiet\n"})
        EXPECT_EQ(run("explain" + file(small_and(more))).output, by_words.output) << more;
    EXPECT_EQ(run("explain" + file("\xef\xbb\xbf" + small_and("policy = bf16\r\nquiet\r\n"))).output,
              by_words.output);
}

TEST_F(OptionFile, WhatIsWrongInItIsNamedWithIt) {
    const auto ends_with = [&](const char* text, const char* words) {
        const Ran ran = run("train" + file(text));
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find(words), std::string::npos) << ran.output;
    };
    ends_with("stpes = 3\n", "options.toml, line 1: train has no option stpes; did you mean --steps?");
    ends_with("config = \"other.toml\"\n", "options.toml, line 1: train has no option config");
    ends_with("steps = 3\nsteps = 4\n", "options.toml, lines 1 and 2: steps takes 1 value, got 2");
    ends_with("\xff\xfe", "options.toml is no text");
    ends_with("quiet = 3\n", "options.toml, line 1: quiet is a switch, true or false, got '3'");
    ends_with("batch = 2\nsteps = many\n",
              "options.toml, line 2: --steps: expected a whole number, got 'many'");
    ends_with("learning-rate = fast\n",
              "options.toml, line 1: --learning-rate: expected a number, got 'fast'");
    // Found wrong later, when the command looks at it.
    ends_with("\n[train]\npolicy = \"bf15\"\n", "options.toml, line 3: --policy");
    ends_with(
        "steps = 1\nmin-learning-rate = 5\n",
        "options.toml, line 2: --min-learning-rate must lie between 0 and --learning-rate 0.001, got 5");
    ends_with("lr = 0.1\n", "options.toml, line 1: train has no option lr; did you mean --learning-rate?");
}

/// An option of no command, and so of none that runs, is no comment.
TEST_F(OptionFile, NothingIsLeftOutInSilence) {
    const auto ends_with = [&](const char* text, const char* words) {
        const Ran ran = run("train" + file(text));
        EXPECT_EQ(ran.status, 2) << ran.output;
        EXPECT_NE(ran.output.find(words), std::string::npos) << ran.output;
    };
    ends_with("{\"text\":\"chats.jsonl\",\"steps\":3}\n",
              "options.toml begins with {, as JSON does; expected");
    ends_with("[other]\nsteps = 3\n",
              "options.toml, line 1: there is no command other; name one, as [train]");
    ends_with("[other]\n", "options.toml, line 1: there is no command other");
    ends_with("other.steps = 3\n", "options.toml, line 1: there is no command other");
    ends_with("[ladder]\nstpes = 3\n",
              "options.toml, line 2: ladder has no option stpes; did you mean --steps?");
    ends_with("steps: 3\n", "options.toml, line 1: 'steps: 3' is no NAME = VALUE");
    // An element that was begun is ended, so that nothing behind it is taken for a part of it.
    ends_with("betas = [0.9,\n0.95\nsteps = 3\n", "options.toml, line 1: a bracket has no end");
    ends_with("batch = 1\nprompt = \"The\nsteps = 3\n", "options.toml, line 2: a quote \" has no end");
    ends_with("betas = [0.9, 0.95] 0.99\n", "options.toml, line 1: '0.99' stands behind the bracket");
    ends_with("[train\nsteps = 3\n", "options.toml, line 1: '[train' is no [NAME]");
    ends_with("steps 3\n", "options.toml, line 1: 'steps 3' is no NAME = VALUE");
    ends_with("=3\n", "options.toml, line 1: '=3' is no NAME = VALUE");
    ends_with("steps =\n", "options.toml, line 1: --steps: the value is empty");
    const Ran missing = run("train --config /nowhere/at/all");
    EXPECT_EQ(missing.status, 2);
    EXPECT_EQ(last_line(missing.output), "mantissa: --config: cannot open /nowhere/at/all");
    EXPECT_EQ(last_line(run("train --config /").output),
              "mantissa: --config: / is a folder; expected a file of options");
    EXPECT_NE(run("train --config").status, 0);
}

TEST(Help, SortsEveryOptionOfALongCommand) {
    for (const char* command : {"train", "ladder", "explain", "numerics", "numerics converge"}) {
        const std::string help = run(std::string(command) + " --help").output;
        const std::size_t begin = help.find("\nOptions:\n"), end = help.find("\n\n", begin + 1);
        ASSERT_NE(begin, std::string::npos) << help;
        const std::string unsorted = help.substr(begin, end - begin);
        EXPECT_EQ(std::count(unsorted.begin(), unsorted.end(), '\n'), 2) << command << unsorted;
        EXPECT_NE(help.find("\nModel:\n"), std::string::npos) << help;
        EXPECT_NE(help.find("\nMachine:\n"), std::string::npos) << help;
    }
}

TEST(Manual, HasEveryCommandAndOption) {
    const Ran ran = run("manual");
    EXPECT_EQ(ran.status, 0);
    EXPECT_EQ(ran.output.find(".TH MANTISSA 1 "), 0u);
    for (const char* wanted : {"\n.SH mantissa train\n", "\n.SH mantissa numerics converge\n",
                               "\n.SS Checkpoints\n", "\\fB\\-\\-learning\\-rate\\fR", "\n.SH EXIT STATUS\n"})
        EXPECT_NE(ran.output.find(wanted), std::string::npos) << wanted;
}

}  // namespace
}  // namespace mantissa
