// docs/json.md names no member that no report has. What reports have that it does not name, old_files_test
// finds.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/documented_members.h"

namespace mantissa {
namespace {

/// All that may write a report.
std::string sources() {
    std::string text;
    for (const char* folder : {"/mantissa/report", "/cli"})
        for (const auto& entry :
             std::filesystem::directory_iterator(MANTISSA_SOURCE_DIR + std::string(folder)))
            if (entry.path().extension() == ".cpp") text += read_file(entry.path());
    return text;
}

/// Whether a source has the name in quotes, alone or between dots.
bool is_written(const std::string& text, const std::string& name) {
    for (const char before : {'"', '.'})
        for (const char after : {'"', '.'})
            if (text.find(before + name + after) != std::string::npos) return true;
    return false;
}

TEST(JsonDocument, NamesNoMemberThatNoReportHas) {
    const std::string text = sources();
    EXPECT_FALSE(is_written(text, "peak_of_nothing"));
    for (const char* command : {"ladder", "bench", "explain", "lint", "peaks", "train", "predict", "generate",
                                "numerics", "numerics converge", "tokenize"}) {
        const auto members = testing::documented_members(command);
        EXPECT_GE(members.size(), 5u) << command;
        for (const auto& [member, says] : members) {
            std::string names = member;
            for (std::size_t at; (at = names.find("[]")) != std::string::npos;) names.erase(at, 2);
            // Before that stands the model's unit: tokens_per_second.
            if (names.ends_with("_per_second")) names = "_per_second";
            std::istringstream parts(names);
            for (std::string part; std::getline(parts, part, '.');)
                EXPECT_TRUE(is_written(text, part)) << command << ": " << member;
        }
    }
}

}  // namespace
}  // namespace mantissa
