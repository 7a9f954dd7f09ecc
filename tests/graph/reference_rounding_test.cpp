// Rounding below sixteen bits as the reference has it: numbers that were worked out by hand, and what is
// lost.
#include "mantissa/graph/reference_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mantissa/graph/call.h"
#include "mantissa/numerics/short_formats.h"

namespace mantissa {
namespace {

/// A matrix of zeros but for some numbers, and what these become.
struct Case {
    std::int64_t row, column;
    double x, y;
};

void expect_rounded(const Shape& shape, const std::vector<Case>& cases, const Attributes& attributes) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, shape}));
    const Tensor y = call(graph, "round_blocks", std::vector{x}, attributes)[0];
    std::vector<double> values(static_cast<std::size_t>(shape.elements()));
    const auto at = [&](const Case& each) {
        return static_cast<std::size_t>(each.row * shape[1] + each.column);
    };
    for (const Case& each : cases) values[at(each)] = each.x;
    const ReferenceRun run(graph, {{"x", values}});
    for (const Case& each : cases)
        EXPECT_EQ(run[y.value()].values[at(each)], each.y) << each.row << " " << each.column;
}

Attributes e4m3_in_blocks_of_128() {
    return {{"element", std::string("e4m3")},
            {"rule", std::string("up")},
            {"axis", std::int64_t{1}},
            {"block", std::int64_t{128}}};
}

/// E4M3 has eight steps to a binade. 448 takes the scale 1; 3 takes 2^-7, since 3 / 448 lies above 2^-8; 1.75
/// takes 2^-8, being 448 x 2^-8; 0.001 takes 2^-18.
TEST(ReferenceRounding, BlocksOf1x128) {
    expect_rounded({2, 130},
                   {{0, 0, 448, 448},
                    {0, 127, 1.0625, 1},  // a tie, to even
                    {0, 1, -1.19, -1.25},
                    {0, 128, 3, 3},              // a block of two
                    {0, 129, 0.01, 1.25 / 128},  // 1.28 in units of the scale
                    {1, 5, 1.75, 1.75},
                    {1, 6, 0.011, 2.75 / 256},         // 2.816
                    {1, 129, 0.001, 256.0 / 262144}},  // 262.144, whose neighbours are 256 and 288
                   e4m3_in_blocks_of_128());
}

TEST(ReferenceRounding, BlocksOf128x128) {
    expect_rounded({130, 130},
                   {{0, 0, 448, 448},
                    {127, 127, 1.0625, 1},
                    {0, 128, 3, 3},
                    {127, 129, 0.01, 1.25 / 128},
                    {128, 0, 1.75, 1.75},
                    {129, 127, 0.011, 2.75 / 256},
                    {129, 129, 0.001, 256.0 / 262144}},
                   e4m3_in_blocks_of_128().with("square", true));
}

TEST(ReferenceRounding, LossesAreCounted) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {1, 4}}));
    const Tensor y = call(graph, "round_blocks", std::vector{x},
                          {{"element", std::string("e2m1")},
                           {"rule", std::string("floor")},
                           {"axis", std::int64_t{1}},
                           {"block", std::int64_t{4}}})[0];
    // The largest's exponent is 2: the scale is 1, 7.5 saturates at 6, and 0.25 becomes zero.
    const ReferenceTensor given{x.type(), {7.5, 0.25, 0, 3}};
    const ReferenceTensor* const operands[] = {&given};
    const reference::RoundingLosses losses =
        reference::losses_of_rounding(graph.node(y.value().node), operands);
    EXPECT_EQ(losses.numbers, 3);
    EXPECT_EQ(losses.flushed, 1);
    EXPECT_EQ(losses.saturated, 1);
    EXPECT_DOUBLE_EQ(losses.signal, 7.5 * 7.5 + 0.0625 + 9);
    EXPECT_DOUBLE_EQ(losses.noise, 1.5 * 1.5 + 0.0625);
}

/// A number that is not finite makes the tensor's factor NaN, so that a step with it is found bad.
TEST(ReferenceRounding, ATensorThatIsNotFiniteHasNoFactor) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        Graph graph;
        const Tensor x(graph, graph.add_input("x", {DType::f32, {1, 3}}));
        const std::vector<Tensor> made = call(graph, "round_blocks", std::vector{x},
                                              {{"element", std::string("e4m3")},
                                               {"rule", std::string("tensor")},
                                               {"axis", std::int64_t{0}},
                                               {"block", std::int64_t{32}}});
        const ReferenceRun run(graph, {{"x", {1, bad, 2}}});
        EXPECT_TRUE(std::isnan(run[made[1].value()].values[0]));
    }
}

}  // namespace
}  // namespace mantissa
