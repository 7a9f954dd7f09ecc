// The meaning of activations, pools and batch normalisation: each test holds a statement of docs/ir.md, which
// names it.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::expect_same;
using testing::infinity;
using testing::nan;
using testing::Numbers;
using testing::Recording;

TEST(Ir, ReluIsZeroAtZeroWithItsGradientAndNanStays) {
    Recording r;
    const Tensor x = r.given({-2, -0.0, 0, 3, nan, infinity, -infinity});
    expect_same(r.values(relu(x)), {0, 0, 0, 3, nan, infinity, 0});
    expect_same(r.gradient(relu(x), x), {0, 0, 0, 1, 1, 1, 0});
}

TEST(Ir, ActivationsAreTheirFunctions) {
    Recording r;
    const double x = -0.75, e = std::exp(x);
    const auto near = [&](Tensor y, double expected) { EXPECT_NEAR(r.values(y)[0], expected, 1e-15); };
    near(sigmoid(r.given({x})), e / (1 + e));
    near(sigmoid(r.given({-x})), 1 / (1 + e));
    near(swish(r.given({x})), x * e / (1 + e));
    near(softplus(r.given({x})), std::log1p(e));
    near(softplus(r.given({-x})), std::log1p(1 / e));
    near(elu(r.given({x}), 0.5), 0.5 * (e - 1));
    near(elu(r.given({-x}), 0.5), -x);
}

TEST(Ir, GradientsOfActivationsStayFiniteFarOut) {
    Recording r;
    // exp(1000) is beyond FP64.
    const Tensor x = r.given({-1000, 1000});
    expect_same(r.gradient(sigmoid(x), x), {0, 0});
    expect_same(r.gradient(swish(x), x), {0, 1});
    expect_same(r.gradient(softplus(x), x), {0, 1});
    expect_same(r.gradient(elu(x), x), {0, 1});
    // At 0 elu takes its lower branch, as in PyTorch.
    const Tensor zero = r.given({0});
    expect_same(r.gradient(elu(zero, 0.25), zero), {0.25});
    expect_same(r.gradient(sigmoid(zero), zero), {0.25});
    expect_same(r.gradient(softplus(zero), zero), {0.5});
    expect_same(r.gradient(swish(zero), zero), {0.5});
}

/// One channel of an image [1, 1, W, 1], whose windows are `window` wide.
Tensor row_of(Recording& r, Numbers values) {
    const auto width = static_cast<std::int64_t>(values.size());
    return r.given({1, 1, width, 1}, std::move(values));
}

TEST(Ir, MaxPoolTakesTheFirstOfEqualsAndNanWins) {
    Recording r;
    const Pool2dOptions pairs{.window = {1, 2}, .stride = {1, 2}};
    const Tensor x = row_of(r, {5, 5, 1, 2, nan, 7, 7, nan, -infinity, -infinity});
    const Tensor y = max_pool2d(x, pairs);
    expect_same(r.values(y), {5, 2, nan, nan, -infinity});
    const Tensor index(r.graph, Value{y.value().node, 1});
    EXPECT_EQ(index.dtype(), DType::u8);
    expect_same(r.values(index), {0, 1, 0, 1, 0});
    expect_same(r.gradient(y, x), {1, 0, 0, 1, 1, 0, 0, 1, 1, 0});
}

TEST(Ir, PaddingNeverWinsAMaximum) {
    Recording r;
    const Pool2dOptions padded{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}};
    const Tensor x = r.given({1, 2, 2, 1}, {-4, -3, -2, -1});
    const Tensor y = max_pool2d(x, padded);
    EXPECT_EQ(y.shape(), (Shape{1, 1, 1, 1}));
    expect_same(r.values(y), {-1});
    // Row 2, column 2 of the window, whose first row and column are padding.
    expect_same(r.values({r.graph, Value{y.value().node, 1}}), {8});
    expect_same(r.gradient(y, x), {0, 0, 0, 1});
}

TEST(Ir, WindowsThatOverlapAddTheirGradients) {
    Recording r;
    const Tensor x = row_of(r, {1, 9, 2});
    const Tensor y = max_pool2d(x, {.window = {1, 2}, .stride = {1, 1}});
    expect_same(r.values(y), {9, 9});
    expect_same(r.gradient(y, x), {0, 2, 0});
}

TEST(Ir, AveragesDivideByWhatIsInTheImageUnlessPaddingCounts) {
    Recording r;
    const Tensor x = row_of(r, {2, 4, 6});
    Pool2dOptions options{.window = {1, 2}, .stride = {1, 2}, .padding = {0, 0, 1, 0}};
    expect_same(r.values(average_pool2d(x, options)), {2, 5});
    expect_same(r.gradient(average_pool2d(x, options), x), {1, 0.5, 0.5});
    options.count_padding = true;
    expect_same(r.values(average_pool2d(x, options)), {1, 5});
    expect_same(r.gradient(average_pool2d(x, options), x), {0.5, 0.5, 0.5});
    // Elements that are left at the end make no window.
    expect_same(r.values(average_pool2d(x, {.window = {1, 2}, .stride = {1, 2}})), {3});
}

TEST(Ir, PartsOfAnAdaptivePoolMayShareAnElement) {
    Recording r;
    const Tensor x = row_of(r, {1, 2, 3, 4, 5});
    expect_same(r.values(adaptive_average_pool2d(x, {1, 2})), {2, 4});  // 1 2 3 and 3 4 5
    expect_same(r.values(adaptive_average_pool2d(x, {1, 1})), {3});
    expect_same(r.gradient(adaptive_average_pool2d(x, {1, 1}), x), {0.2, 0.2, 0.2, 0.2, 0.2});
    const Tensor pair = row_of(r, {10, 20});
    expect_same(r.values(adaptive_average_pool2d(pair, {1, 3})), {10, 15, 20});
}

TEST(Ir, PoolsRefuseWhatDoesNotFit) {
    Recording r;
    const Tensor x = r.given({1, 4, 6, 1}, Numbers(24));
    const auto refusal = [&](const Pool2dOptions& options) {
        return error_of<UserError>([&] { max_pool2d(x, options); });
    };
    const auto says = [](const std::string& message, const char* text) {
        EXPECT_NE(message.find(text), std::string::npos) << message;
    };
    says(refusal({.window = {5, 2}, .stride = {1, 1}}), "a window [5, 2] does not fit into [1, 4, 6, 1]");
    says(refusal({.window = {2, 2}, .stride = {0, 1}}), "window and stride must be 1 or more");
    says(refusal({.window = {2, 2}, .stride = {1, 1}, .padding = {2, 0, 0, 0}}),
         "less than the window [2, 2], got [2, 0, 0, 0] (top, bottom, left, right)");
    const Tensor large = r.given({1, 17, 16, 1}, Numbers(272));
    says(error_of<UserError>([&] {
             max_pool2d(large, {.window = {17, 16}, .stride = {1, 1}});
         }),
         "up to 256 elements, [17, 16] has 272");
    EXPECT_EQ(average_pool2d(large, {.window = {17, 16}, .stride = {1, 1}}).shape(), (Shape{1, 1, 1, 1}));
    says(error_of<UserError>([&] { adaptive_average_pool2d(x, {0, 1}); }), "extents must be 1 or more");
    says(error_of<UserError>([&] {
             max_pool2d(r.given({4, 6}, Numbers(24)), {});
         }),
         "takes images [N, H, W, C], got f32[4, 6]");
}

TEST(Ir, BatchNormNormalisesEachChannelByItsBiasedVariance) {
    Recording r;
    const Tensor x = r.given({2, 1, 2}, {1, 7, 5, 7}), gamma = r.given({2, 3}), beta = r.given({10, 20});
    const BatchNormed y = batch_norm(x, gamma, beta, 0.5);
    const double reciprocal = 1 / std::sqrt(4 + 0.5);  // the variance of 1 and 5 is 4, their mean 3
    expect_same(r.values(y.mean), {3, 7});
    expect_same(r.values(y.variance), {4, 0});
    expect_same(r.values(y.y), {-2 * (reciprocal * 2) + 10, 20, 2 * (reciprocal * 2) + 10, 20});
    const Tensor given = normalize(x, gamma, beta, {.mean = y.mean, .variance = y.variance}, 0.5);
    expect_same(r.values(given), r.values(y.y));
}

TEST(Ir, StatisticsOfABatchHaveNoGradient) {
    Recording r;
    const Tensor x = r.given({2, 1}, {1, 5}), one = r.given({1});
    const BatchNormed y = batch_norm(x, one, one);
    EXPECT_NE(error_of<UserError>([&] { r.gradient(y.variance, x); }).find("statistics have no gradient"),
              std::string::npos);
    expect_same(r.gradient(y.y * stop_gradient(y.variance), x), r.gradient(y.y * 4.0, x));
}

TEST(Ir, BatchNormReadsSixteenBitsAndWritesThem) {
    Recording r;
    const Tensor x = r.given({3, 1}, {1, 2, 5}, DType::bf16), one = r.given({1}), zero = r.given({0});
    const BatchNormed y = batch_norm(x, one, zero);
    EXPECT_EQ(y.y.dtype(), DType::bf16);
    EXPECT_EQ(y.mean.dtype(), DType::f32);
    EXPECT_EQ(r.values(y.mean)[0], 8.0 / 3);  // not rounded to BF16
    const Tensor dy = r.given({3, 1}, {1, 0, 0}, DType::bf16);
    const std::vector<Tensor> inputs{x, one};
    const auto gradients = backpropagate(r.graph, {&y.y, 1}, {&dy, 1}, inputs);
    EXPECT_EQ(gradients[0].dtype(), DType::bf16);
    EXPECT_EQ(gradients[1].dtype(), DType::f32);
}

TEST(Ir, LayersThatShareAScaleAddUpItsGradients) {
    // The second layer's x depends on the scale by way of the first. Expanded, its gradient must not follow
    // that path, which the first layer's own gradient is.
    Recording r;
    const Tensor x = r.given({3, 1}, {1, 2, 5}), gamma = r.given({1.5}), other = r.given({1.5}),
                 zero = r.given({0});
    const auto gradient = [&](Tensor first, Tensor second, Tensor by) {
        const Tensor y = batch_norm(tanh(batch_norm(x, first, zero).y), second, zero).y;
        const Tensor loss = sum(y * y * y, {0, 1}), one = constant(r.graph, 1.0);
        return backpropagate(r.graph, {&loss, 1}, {&one, 1}, {&by, 1})[0];
    };
    r.graph.add_result("first", gradient(gamma, other, gamma).value());
    r.graph.add_result("second", gradient(gamma, other, other).value());
    r.graph.add_result("shared", gradient(gamma, gamma, gamma).value());
    const Graph expanded = expand(r.graph, [](const Graph&, const Node&) { return true; });
    const ReferenceRun run(expanded, r.feed);
    const auto number = [&](const char* name) { return run.result(name).values[0]; };
    EXPECT_NEAR(number("shared"), number("first") + number("second"), 1e-12);
    EXPECT_GT(std::abs(number("first")), 1e-3) << "a path that does not matter tests nothing";
}

}  // namespace
}  // namespace mantissa
