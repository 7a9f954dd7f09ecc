// The library names fields of options structs; the program puts its own options in their place.
#include "cli/print_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <string>

#include "mantissa/base/error.h"

namespace mantissa::cli {
namespace {

/// Calls `look` with each line of the library's sources that may be part of a text, and its place.
void for_each_line_of_the_library(const std::function<void(const std::string&, const std::string&)>& look) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(MANTISSA_SOURCE_DIR "/mantissa")) {
        if (file.path().extension() != ".cpp" && file.path().extension() != ".h") continue;
        std::ifstream lines(file.path());
        int number = 0;
        for (std::string line; std::getline(lines, line);)
            look(line.substr(0, line.find("//")), file.path().string() + ":" + std::to_string(++number));
    }
}

TEST(FieldsAndOptions, TheLibraryKnowsNoOption) {
    const std::regex option("\"[^\")]*--[a-z]");
    int lines = 0;
    for_each_line_of_the_library([&](const std::string& line, const std::string& place) {
        ++lines;
        EXPECT_FALSE(std::regex_search(line, option)) << place << ": " << line;
    });
    EXPECT_GT(lines, 10'000);
    EXPECT_TRUE(std::regex_search("throw UserError(\"lower --batch\");", option));
}

TEST(FieldsAndOptions, EveryFieldThatTheLibraryNamesHasItsOption) {
    const std::regex field("`([a-z_.{}]+)`");
    int fields = 0;
    for_each_line_of_the_library([&](const std::string& line, const std::string& place) {
        if (line.find('"') == std::string::npos) return;  // in no text
        for (std::sregex_iterator at(line.begin(), line.end(), field), end; at != end; ++at) {
            ++fields;
            if (at->str(1) == "size.{}") continue;  // the sizes of a benchmark, below
            EXPECT_NE(with_options(at->str()), at->str()) << place << ": no option stands for " << at->str();
        }
    });
    EXPECT_GT(fields, 20);
    for (const std::string chosen : {"`trunk`", "`recompute`", "`batch`", "`accumulate`", "`sequence`"})
        EXPECT_NE(with_options(chosen), chosen) << "a setting of memory_fit.cpp";
}

TEST(FieldsAndOptions, OneStandsForTheOther) {
    const UsageError error("`least` must lie between 0 and `peak` 1, got 2");
    EXPECT_EQ(error.field(), "least");
    EXPECT_EQ(with_options(error.what()),
              "--min-learning-rate must lie between 0 and --learning-rate 1, got 2");
    EXPECT_EQ(with_options("`size.batch`, `size.batches`, `size.iterations`, `size.warmup_batches`"),
              "--batch-size, --num-batches-per-iter, --num-iters, --num-warmup-batches");
    EXPECT_EQ(with_options("a `word` and `batch: 3` stay"), "a `word` and `batch: 3` stay");
    EXPECT_EQ(UsageError("no field").field(), "");
}

}  // namespace
}  // namespace mantissa::cli
