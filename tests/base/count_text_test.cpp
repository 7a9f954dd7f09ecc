#include "mantissa/base/printable.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(CountText, OneIsSingular) {
    EXPECT_EQ(count_text(0, "step"), "0 steps");
    EXPECT_EQ(count_text(1, "step"), "1 step");
    EXPECT_EQ(count_text(std::size_t{2}, "step"), "2 steps");
    EXPECT_EQ(count_text(std::int64_t{-1}, "step"), "-1 steps");
    EXPECT_EQ(count_text(1u, "batch", "batches"), "1 batch");
    EXPECT_EQ(count_text(10, "batch", "batches"), "10 batches");
}

}  // namespace
}  // namespace mantissa
