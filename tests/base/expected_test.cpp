#include "mantissa/base/expected.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

Expected<int> half_of(int number) {
    if (number % 2 != 0) return Unexpected{std::to_string(number) + " is odd"};
    return number / 2;
}

TEST(Expected, HoldsAValueOrTheReasonWhyThereIsNone) {
    const Expected<int> half = half_of(8);
    ASSERT_TRUE(half);
    EXPECT_EQ(*half, 4);
    EXPECT_EQ(half.reason(), "");
    EXPECT_FALSE(half_of(7));
    EXPECT_EQ(half_of(7).reason(), "7 is odd");
}

TEST(Expected, AMissingValueIsNotRead) {
    try {
        *half_of(7);
        FAIL() << "it was read";
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("there is no value: 7 is odd"), std::string::npos)
            << error.what();
    }
}

TEST(Expected, NoValueNeedsAReason) { EXPECT_THROW(Expected<int>(Unexpected{}), InternalError); }

TEST(FirstReason, IsTheFirst) {
    FirstReason why_not;
    EXPECT_FALSE(why_not.refuse("3 rows"));
    EXPECT_FALSE(why_not.refuse("later"));
    EXPECT_EQ(why_not.none().reason, "3 rows");
}

}  // namespace
}  // namespace mantissa
