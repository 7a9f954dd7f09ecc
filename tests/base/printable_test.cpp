#include "mantissa/base/printable.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Printable, ControlCharactersAreShown) {
    using namespace std::string_literals;
    EXPECT_EQ(printable("a\0b\x13\x1b[2J\x7f\r"s), "a\\x00b\\x13\\x1b[2J\\x7f\\x0d");
    EXPECT_EQ(printable("\xc2\x9b"
                        "2J \xc2\xa0"),
              "\\x9b2J \xc2\xa0");  // U+009B begins a terminal's commands, U+00A0 is a space
    EXPECT_EQ(printable("zwei\nZeilen\tmit \xc3\xbc und \xf0\x9f\x98\x80 \xc2"),
              "zwei\nZeilen\tmit \xc3\xbc und \xf0\x9f\x98\x80 \xc2");
}

}  // namespace
}  // namespace mantissa
