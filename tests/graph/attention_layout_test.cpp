// Strides of attention's tensors in each order of axes.
#include "mantissa/graph/attention_layout.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

void expect_strides(const AttentionStrides& found, const AttentionStrides& expected, const char* axes) {
    EXPECT_EQ(found.start, expected.start) << axes;
    EXPECT_EQ(found.sequence, expected.sequence) << axes;
    EXPECT_EQ(found.head, expected.head) << axes;
    EXPECT_EQ(found.position, expected.position) << axes;
}

TEST(AttentionLayout, StridesFollowTheOrderOfAxes) {
    constexpr std::int64_t B = 2, H = 3, T = 5, D = 7, parts = 4;
    expect_strides(strides_of("bhtd", {B, H, T, D}), {.sequence = H * T * D, .head = T * D, .position = D},
                   "bhtd");
    expect_strides(strides_of("bthd", {B, T, H, D}), {.sequence = T * H * D, .head = D, .position = H * D},
                   "bthd");
    expect_strides(strides_of("btphd", {B, T, parts, H, D}, 2),
                   {.start = 2 * H * D, .sequence = T * parts * H * D, .head = D, .position = parts * H * D},
                   "btphd");
}

TEST(AttentionLayout, StoredShapesNameTheSameHeads) {
    constexpr std::int64_t B = 2, H = 3, T = 5, D = 7, parts = 4;
    const Shape heads{B, H, T, D};
    EXPECT_EQ(stored_shape("btphd", heads, parts), (Shape{B, T, parts, H, D}));
    for (const char* axes : {"bhtd", "bthd", "btphd"})
        EXPECT_EQ(heads_of_stored(axes, stored_shape(axes, heads, parts)), heads) << axes;
}

}  // namespace
}  // namespace mantissa
