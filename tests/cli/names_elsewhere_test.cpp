// Options under the names of other programs lead to those that are meant here.
#include "cli/names_elsewhere.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "tests/cli/run_program.h"

namespace mantissa {
namespace {

using testing::last_line;
using testing::run;

/// Words of what the shell is told to complete: every option of every command.
std::set<std::string, std::less<>> all_options() {
    std::string text = run("completion bash").output;
    std::ranges::replace_if(
        text, [](char c) { return c == '"' || c == '\'' || c == ')' || c == '('; }, ' ');
    std::istringstream words(text);
    std::set<std::string, std::less<>> options;
    for (std::string word; words >> word;)
        if (word.starts_with("--")) options.insert(word);
    return options;
}

TEST(NamesElsewhere, LeadToOptionsThatExist) {
    const auto options = all_options();
    std::set<std::string_view> seen;
    for (const cli::NamesElsewhere& row : cli::names_elsewhere()) {
        for (const std::string_view option : row.options) EXPECT_TRUE(options.contains(option)) << option;
        for (const std::string_view name : row.names)
            EXPECT_TRUE(seen.insert(name).second) << name << " twice";
    }
}

TEST(NamesElsewhere, AreAnsweredByTheProgram) {
    for (const auto& [typed, answer] : {
             std::pair{"train --lr 1", "train has no option --lr; did you mean --learning-rate?"},
             {"train --max-steps 1", "no option --max-steps; did you mean --steps?"},
             {"train --batch-size=4", "no option --batch-size; did you mean --batch?"},
             {"train --epochs 3", "no option --epochs; did you mean --steps (training is counted in steps"},
             {"train --n_layer 3", "no option --n_layer; did you mean --layers?"},
             {"train --fp16", "no option --fp16; did you mean --policy (with fp32"},
             {"train --num_workers 3", "no option --num_workers; did you mean --read-threads?"},
             {"bench --batch 3", "no option --batch; did you mean --batch-size?"},
             {"generate --max-new-tokens 3", "did you mean --length?"},
             {"generate --model-name-or-path x", "did you mean --checkpoint (a folder"},
             {"train --stpes 3", "did you mean --steps?"},
             {"train --learning_rate 3", "did you mean --learning-rate?"},
         }) {
        const testing::Ran ran = run(typed);
        EXPECT_EQ(ran.status, 2);
        EXPECT_NE(last_line(ran.output).find(answer), std::string::npos) << ran.output;
    }
    // Nothing is like it.
    EXPECT_NE(run("train --xyzzy 3").output.find("has no option --xyzzy; `mantissa train --help` lists them"),
              std::string::npos);
}

TEST(WrongWords, EndInOneLineWithTheProgramsName) {
    for (const char* typed : {"", "completion", "train --steps abc", "train --steps 1.5", "train --clip x"}) {
        const std::string output = run(typed).output;
        EXPECT_TRUE(output.starts_with("mantissa: ")) << output;
        EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
        EXPECT_NE(output.find("--help` lists what there is"), std::string::npos) << output;
    }
}

}  // namespace
}  // namespace mantissa
