// Where axes go by reshapes and transpositions.
#include "mantissa/passes/attention/axis_map.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/attention_graphs.h"

namespace mantissa {
namespace {

using namespace testing::attending;

TEST(AxisMap, MergedAxesAreProductsOfTheirAtoms) {
    AxisMap map(Shape{B, H, T, S});
    ASSERT_TRUE(map.reshape({B * H, T, S}));
    ASSERT_EQ(map.rank(), 3);
    ASSERT_EQ(map[0].size(), 2u);
    EXPECT_EQ(map[0][0], (AxisAtom{.axis = 0, .stride = 1, .extent = B}));
    EXPECT_EQ(map[0][1], (AxisAtom{.axis = 1, .stride = 1, .extent = H}));
    EXPECT_TRUE(is_whole(map[-1], 3, S));
    EXPECT_FALSE(is_whole(map[0], 0, B));
}

TEST(AxisMap, AnAxisIsCutOnlyWherePartsEnd) {
    AxisMap map(Shape{6, 4});
    ASSERT_TRUE(map.reshape({2, 3, 4}));
    EXPECT_EQ(map[0], (AxisAtoms{{.axis = 0, .stride = 3, .extent = 2}}));
    EXPECT_EQ(map[1], (AxisAtoms{{.axis = 0, .stride = 1, .extent = 3}}));
    AxisMap uneven(Shape{2, 3});
    EXPECT_FALSE(uneven.reshape({3, 2}));
}

TEST(AxisMap, TranspositionsAreUndone) {
    AxisMap map(Shape{B, T, H});
    const std::array<std::int64_t, 3> order = {2, 0, 1};
    map.transpose(order);
    EXPECT_TRUE(is_whole(map[0], 2, H));
    EXPECT_TRUE(is_whole(map[1], 0, B));
    EXPECT_TRUE(is_whole(map[2], 1, T));
    map.undo_transpose(order);
    for (int axis = 0; axis < 3; ++axis) EXPECT_EQ(map[axis], AxisMap(Shape{B, T, H})[axis]) << axis;
}

}  // namespace
}  // namespace mantissa
