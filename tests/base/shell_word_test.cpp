#include "mantissa/base/printable.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(ShellWord, IsQuotedWhereAShellReadsMoreThanText) {
    EXPECT_EQ(shell_word("notes/monday.md"), "notes/monday.md");
    EXPECT_EQ(shell_word("a & b.md"), "'a & b.md'");
    EXPECT_EQ(shell_word("it's.md"), "'it'\\''s.md'");
    EXPECT_EQ(shell_word("Größe"), "'Größe'");
    EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace mantissa
