#include "mantissa/base/name_pattern.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(NamePattern, StarsStandForAnyTextAndQuestionMarksForOneCharacter) {
    for (const char* pattern : {"h.0.mlp.weight", "*", "**", "h.*", "*.weight", "h.?.mlp.*", "h*mlp*t",
                                "h.0.*.weight", "*h.0.mlp.weight*", "?.?.???.??????"})
        EXPECT_TRUE(matches(pattern, "h.0.mlp.weight")) << pattern;
    for (const char* pattern :
         {"", "h", "h.0.mlp.weigh", "h.0.mlp.weight?", "*.bias", "h.??.mlp.*", "mlp", "H.*", "h*mlp*x*t"})
        EXPECT_FALSE(matches(pattern, "h.0.mlp.weight")) << pattern;
    EXPECT_TRUE(matches("", ""));
    EXPECT_TRUE(matches("*a*b", "aabab"));
    EXPECT_FALSE(matches("*a*b", "aaba"));
}

}  // namespace
}  // namespace mantissa
