// Rows of a CSV file as examples, and what is said where a file is not as it should be.
#include "mantissa/data/own_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "mantissa/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

class Csv : public ::testing::Test {
  protected:
    CsvTable table(const std::string& text, const CsvOptions& options = {}) {
        std::ofstream(path_, std::ios::binary) << text;
        return CsvTable(path_, options);
    }
    /// The refusal of the file, without its folder.
    template <class Body>
    std::string refusal(const std::string& text, Body&& body, const CsvOptions& options = {}) {
        const std::string said = testing::error_of<UserError>([&] { body(table(text, options)); });
        return said.starts_with(directory_.path().string())
                   ? said.substr(directory_.path().string().size() + 1)
                   : said;
    }
    std::string refusal(const std::string& text) {
        return refusal(text, [](const CsvTable&) {});
    }

    TemporaryDirectory directory_;
    std::filesystem::path path_ = directory_.path() / "t.csv";
};

using Names = std::vector<std::string>;

TEST_F(Csv, ColumnsAreFoundByName) {
    const CsvTable rows = table("a,b,class\n1,-2.5,1\n3e2, +4 ,0\n");
    EXPECT_EQ(rows.rows(), 2);
    EXPECT_EQ(rows.columns(), (Names{"a", "b", "class"}));
    EXPECT_EQ(rows.columns_but("a"), (Names{"b", "class"}));
    EXPECT_EQ(rows.numbers({"b", "a"}), (std::vector<float>{-2.5f, 1, 4, 300}));
    EXPECT_EQ(testing::error_of<UserError>([&] { rows.numbers({"c"}); }),
              path_.string() + ": there is no column 'c'; there are: a, b, class");
}

TEST_F(Csv, WithoutANameColumnsAreNumbered) {
    const CsvTable rows = table("1;2\n3;4", {.header = false, .separator = ';'});
    EXPECT_EQ(rows.columns(), (Names{"1", "2"}));
    EXPECT_EQ(rows.numbers({"2"}), (std::vector<float>{2, 4}));
}

TEST_F(Csv, OtherProgramsFilesMeanTheSame) {
    const std::string plain = "name,x\nred,1\nblue,2\n";
    for (const std::string& text :
         {plain, std::string("name,x\r\nred,1\r\nblue,2\r\n"), std::string("name,x\nred,1\nblue,2"),
          std::string("\xEF\xBB\xBFname,x\n\nred,1\n\r\nblue,2\n\n"),
          std::string("\"name\",\"x\"\r\n\"red\",\"1\"\r\n\"blue\",2")}) {
        const CsvTable rows = table(text);
        EXPECT_EQ(rows.columns(), (Names{"name", "x"})) << text;
        EXPECT_EQ(rows.numbers({"x"}), (std::vector<float>{1, 2})) << text;
        EXPECT_EQ(rows.classes("name").labels, (Names{"blue", "red"})) << text;
    }
}

TEST_F(Csv, QuotedCellsHoldAnything) {
    const CsvTable rows = table("name,x\n\"one, two\",1\n\"a \"\"b\"\"\nc\",2\n\"\"\"\",3\nplain \"q\",4\n");
    EXPECT_EQ(rows.classes("name").labels, (Names{"\"", "a \"b\"\nc", "one, two", "plain \"q\""}));
    EXPECT_EQ(rows.numbers({"x"}), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Csv, ClassesAreThoseOfTheWholeFileInOrder) {
    CsvTable rows = table("k,n\nred,10\ngreen,9\nred,10\nblue,-1\n");
    EXPECT_EQ(rows.classes("k").ids, (std::vector<std::int32_t>{2, 1, 2, 0}));
    EXPECT_EQ(rows.classes("k").labels, (Names{"blue", "green", "red"}));
    EXPECT_EQ(rows.classes("n").labels, (Names{"-1", "9", "10"}));  // by number, not by letter
    const CsvTable one = rows.hold_out(0.5, 2);
    EXPECT_EQ(one.classes("k").labels.size(), 3u);
    EXPECT_EQ(rows.classes("k").labels, one.classes("k").labels);
}

std::string hundreds_of_rows(int count) {
    std::string text = "x\n";
    for (int i = 0; i < count; ++i) text += std::to_string(i) + "\n";
    return text;
}

TEST_F(Csv, RowsAreHeldOutOnce) {
    CsvTable rows = table(hundreds_of_rows(400)), others = table(hundreds_of_rows(400)), again = others;
    const CsvTable held_out = rows.hold_out(0.3);
    EXPECT_GT(held_out.rows(), 90);
    EXPECT_LT(held_out.rows(), 150);
    EXPECT_EQ(rows.rows(), 400 - held_out.rows());
    std::vector<float> all = rows.numbers({"x"}), held = held_out.numbers({"x"});
    EXPECT_TRUE(std::ranges::is_sorted(held));
    EXPECT_EQ(others.hold_out(0.3, 0).numbers({"x"}), held);
    EXPECT_NE(again.hold_out(0.3, 1).numbers({"x"}), held);
    all.insert(all.end(), held.begin(), held.end());
    std::ranges::sort(all);
    for (int i = 0; i < 400; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], static_cast<float>(i));
    // The rows that are left are chosen from anew.
    EXPECT_GT(rows.hold_out(0.3).rows(), 60);
    EXPECT_EQ(testing::error_of<UserError>([&] { rows.hold_out(0.000001); }),
              path_.string() + ": 1e-06 of " + std::to_string(rows.rows()) +
                  " rows are to be held out, and that is none; give another part, or another seed");
    EXPECT_EQ(testing::error_of<UserError>([&] { rows.hold_out(1); }),
              path_.string() + ": 1 of the rows are to be held out; expected a part above 0 and below 1");
}

TEST_F(Csv, ARowStaysOnItsSideWhateverIsAdded) {
    CsvTable rows = table(hundreds_of_rows(400));
    const std::vector<float> before = rows.hold_out(0.2).numbers({"x"});
    std::string text = hundreds_of_rows(440);
    text.insert(2, "-1\n-2\n3\n");  // in front, one of them twice
    CsvTable more = table(text);
    std::vector<float> after = more.hold_out(0.2).numbers({"x"});
    const auto left = more.numbers({"x"});
    EXPECT_TRUE(std::ranges::count(after, 3.0f) == 2 || std::ranges::count(left, 3.0f) == 2);
    std::ranges::sort(after);
    after.erase(std::unique(after.begin(), after.end()), after.end());
    std::erase_if(after, [](float x) { return x < 0 || x >= 400; });
    EXPECT_EQ(after, before);
}

TEST_F(Csv, WhatIsWrongIsNamedByLineAndColumn) {
    EXPECT_EQ(refusal("a,b\n1,2\n3\n"), "t.csv:3: has 1 cell, the first line 2");
    EXPECT_EQ(refusal("a,b\n\"x\ny\",2\n3,4,5\n"), "t.csv:4: has 3 cells, the first line 2");
    EXPECT_EQ(refusal("a,a\n1,2\n"), "t.csv:1: two columns are named 'a'");
    EXPECT_EQ(refusal("a,b\n\"1,2\n3,4\n"), "t.csv:2: a quoted cell does not end");
    EXPECT_EQ(refusal("a,b\n1,\"2\"x\n"), "t.csv:2: cell 2 goes on behind its closing quote");
    EXPECT_EQ(refusal(""), "t.csv: is empty; expected rows of a CSV file");
    EXPECT_EQ(refusal("a,b\n\n"), "t.csv: has no rows below the names of its columns");
    const auto numbers = [](const CsvTable& rows) { rows.numbers(rows.columns()); };
    EXPECT_EQ(refusal("a,b\n1,2\n\n3,abc\n", numbers),
              "t.csv:4: column 'b' holds 'abc'; expected a finite number");
    EXPECT_EQ(refusal("a,b\n1, \n", numbers), "t.csv:2: column 'b' is empty; expected a finite number");
    for (const char* const cell : {"nan", "inf", "1e99", "1.2.3", "1,5", "0x10", "+-1"})
        EXPECT_EQ(refusal(fmt::format("a,b\n1,\"{}\"\n", cell), numbers),
                  fmt::format("t.csv:2: column 'b' holds '{}'; expected a finite number", cell));
    EXPECT_EQ(refusal("a,b\n1,\n", [](const CsvTable& rows) { rows.classes("b"); }),
              "t.csv:2: column 'b' is empty; expected a class");
    EXPECT_NE(testing::error_of<UserError>([&] { CsvTable("/no/such.csv"); }).find("/no/such.csv"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
