#include "mantissa/nn/losses.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa::nn {
namespace {

using testing::error_of;
using testing::expect_near;
using testing::Numbers;
using testing::Recording;

constexpr double digits = 1e-15;  // FP64, some operations

TEST(Losses, OfNumbersAreMeansOverAllElements) {
    Recording r;
    const Tensor x = r.given({2, 2}, {1, -2, 0.5, 4}), t = r.given({2, 2}, {0, -2, 1, 1});
    // Errors: 1, 0, -1/2, 3.
    expect_near(r.values(mse_loss(x, t)), {(1 + 0.25 + 9) / 4}, digits);
    expect_near(r.gradient(mse_loss(x, t), x), {2.0 / 4, 0, -1.0 / 4, 6.0 / 4}, digits);
    expect_near(r.values(l1_loss(x, t)), {4.5 / 4}, digits);
    expect_near(r.gradient(l1_loss(x, t), x), {0.25, 0, -0.25, 0.25}, digits);
    expect_near(r.values(huber_loss(x, t)), {(0.5 + 0.125 + 2.5) / 4}, digits);
    expect_near(r.gradient(huber_loss(x, t), x), {0.25, 0, -0.125, 0.25}, digits);
    expect_near(r.values(huber_loss(x, t, 2)), {(0.5 + 0.125 + 2 * 2) / 4}, digits);
}

TEST(Losses, OfYesAndNoStayFiniteForLargeLogits) {
    Recording r;
    const Tensor z = r.given({4}, {0, 2, -800, 800}), t = r.given({4}, {1, 0.25, 0, 0});
    const double p = 1 / (1 + std::exp(-2.0));
    const double second = -(0.25 * std::log(p) + 0.75 * std::log(1 - p));
    EXPECT_NEAR(r.values(binary_cross_entropy(z, t))[0], (std::log(2.0) + second + 0 + 800) / 4, 1e-12);
    expect_near(r.gradient(binary_cross_entropy(z, t), z), {-0.5 / 4, (p - 0.25) / 4, 0, 0.25}, digits);
}

TEST(Losses, OfDistributionsAreMeansOverRows) {
    Recording r;
    const Tensor z = r.given({2, 3}, {1, 2, -1, 0, 0, 800}), t = r.given({2, 3}, {0.5, 0.25, 0.25, 0, 0, 1});
    const double total = std::exp(1.0) + std::exp(2.0) + std::exp(-1.0), lse = std::log(total);
    EXPECT_NEAR(r.values(soft_cross_entropy(z, t))[0], (lse - 0.5 - 0.5 + 0.25) / 2, 1e-14);
    const Numbers gradient = r.gradient(soft_cross_entropy(z, t), z);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(gradient[i],
                    (std::exp(std::vector{1.0, 2.0, -1.0}[i]) / total - std::vector{0.5, 0.25, 0.25}[i]) / 2,
                    1e-14);
    const Tensor p = r.given({2, 3}, {-1, -2, -3, -4, -5, -0.5});
    const Tensor ids = r.given({1, 2}, DType::i32);
    expect_near(r.values(nll_loss(p, ids)), {1.25}, digits);
    expect_near(r.gradient(nll_loss(p, ids), p), {0, -0.5, 0, 0, 0, -0.5}, digits);
    expect_near(
        r.values(kl_divergence(p, t)),
        {(0.5 * (std::log(0.5) + 1) + 0.25 * (std::log(0.25) + 2) + 0.25 * (std::log(0.25) + 3) + 0.5) / 2},
        digits);
    expect_near(r.gradient(kl_divergence(p, t), p), {-0.25, -0.125, -0.125, 0, 0, -0.5}, digits);
}

TEST(Losses, RefuseShapesThatWouldBeBroadcast) {
    Recording r;
    const Tensor x = r.given({2, 1}, {1, 2}), t = r.given({2}, {1, 2});
    for (const auto& loss :
         {+[](Tensor a, Tensor b) { mse_loss(a, b); }, +[](Tensor a, Tensor b) { l1_loss(a, b); },
          +[](Tensor a, Tensor b) { huber_loss(a, b); },
          +[](Tensor a, Tensor b) { binary_cross_entropy(a, b); }}) {
        const std::string said = error_of<UserError>([&] { loss(x, t); });
        EXPECT_NE(said.find("the prediction is f32[2, 1], the target f32[2]; expected one shape"), said.npos)
            << said;
        EXPECT_NE(said.find("losses_test.cpp:"), said.npos) << said;
    }
    const std::string said = error_of<UserError>([&] { huber_loss(x, x, 0); });
    EXPECT_NE(said.find("delta must be above 0, got 0"), said.npos) << said;
}

}  // namespace
}  // namespace mantissa::nn
