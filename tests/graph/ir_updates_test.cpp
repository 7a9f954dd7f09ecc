// The meaning of losses and of updates: each test holds a statement of docs/ir.md, which names it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::expect_same;
using testing::infinity;
using testing::nan;
using testing::Numbers;
using testing::Recording;

TEST(Ir, CrossEntropyIsTheMeanOverRows) {
    Recording r;
    const Tensor logits = r.given({2, 2}, {std::log(1.0), std::log(3.0), std::log(4.0), std::log(4.0)});
    const auto y =
        call(r.graph, "cross_entropy", std::vector{logits, r.given({1, 0}, DType::i32)});  // p = 3/4, 1/2
    EXPECT_NEAR(r.values(y[0])[0], (std::log(4.0 / 3) + std::log(2.0)) / 2, 1e-15);
    EXPECT_NEAR(r.values(y[1])[1], std::log(8.0), 1e-15);  // the log-sum-exp of each row
}

TEST(Ir, ColumnsBehindTheClassesCountForNothing) {
    Recording r;
    const Tensor targets = r.given({1, 0}, DType::i32);
    const Tensor plain = r.given({2, 2}, {std::log(1.0), std::log(3.0), std::log(4.0), std::log(4.0)});
    const Tensor padded = r.given(
        {2, 4}, {std::log(1.0), std::log(3.0), nan, 99, std::log(4.0), std::log(4.0), infinity, -infinity});
    const Attributes classes{{"classes", std::int64_t{2}}};
    const auto expected = call(r.graph, "cross_entropy", std::vector{plain, targets});
    const auto y = call(r.graph, "cross_entropy", std::vector{padded, targets}, classes);
    expect_same(r.values(y[0]), r.values(expected[0]));
    expect_same(r.values(y[1]), r.values(expected[1]));
    const Tensor one = constant(r.graph, 1.0);
    const Tensor gradient = call1("cross_entropy_grad", {one, padded, targets, y[1]}, classes);
    const Numbers g = r.values(gradient);
    EXPECT_NEAR(g[0], 0.125, 1e-15);  // (p - 0) / 2 rows
    EXPECT_NEAR(g[1], -0.125, 1e-15);
    expect_same({g[2], g[3], g[6], g[7]}, {0, 0, 0, 0});
}

TEST(Ir, IgnoredTargetsCountForNothing) {
    const Attributes ignoring{{"ignore_negative", true}};
    const double four = std::log(4.0);
    Recording r;
    const Tensor logits = r.given({3, 2}, {0, std::log(3.0), four, four, 5, infinity});
    const Tensor targets = r.given({1, 0, -7}, DType::i32);
    const auto y = call(r.graph, "cross_entropy", std::vector{logits, targets}, ignoring);
    const double sum = std::log(4.0 / 3) + std::log(2.0);
    EXPECT_NEAR(r.values(y[0])[0], sum / 3, 1e-15);  // of all rows
    const Tensor plain = r.given({3, 2}, {0, std::log(3.0), four, four, 5, 6});
    const Tensor lse = r.given({four, std::log(8.0), 6.3});
    const Numbers g =
        r.values(call1("cross_entropy_grad", {constant(r.graph, 3.0), plain, targets, lse}, ignoring));
    EXPECT_NEAR(g[0], 0.25, 1e-15);
    EXPECT_NEAR(g[3], 0.5, 1e-15);
    expect_same({g[4], g[5]}, {0, 0});
    EXPECT_NEAR(r.values(counted_cross_entropy(plain, targets))[0], sum / 2, 1e-7);
    EXPECT_NEAR(r.values(counted_cross_entropy(plain, targets, constant(r.graph, 5.0)))[0], sum / 5, 1e-7);
    const Tensor none = r.given({-1, -2, -3}, DType::i32);
    expect_same(r.values(counted_cross_entropy(plain, none)), {0});
}

TEST(Ir, UpdatesAndResultsReadTheOldState) {
    Recording r;
    const Tensor a = r.kept("a", {5}), b = r.kept("b", {3});
    r.kept("c", {7});
    r.graph.add_update(0, (a + b).value());
    r.graph.add_update(1, (a - b).value());
    r.graph.add_result("a", a.value());
    const ReferenceRun run(r.graph, r.feed);
    const ReferenceFeed after = run.next(r.feed);
    EXPECT_EQ(after.at("a"), Numbers{8});
    EXPECT_EQ(after.at("b"), Numbers{2});
    EXPECT_EQ(after.at("c"), Numbers{7});  // without an update it stays
    EXPECT_EQ(run.result("a").values, Numbers{5});
}

TEST(Ir, GlobalNormTestsEveryElement) {
    Recording r;
    const Tensor x = r.given({3, 0}), y = r.given({4});
    const auto norm = call(r.graph, "global_norm", std::vector{x, y});
    expect_same(r.values(norm[0]), {5});
    expect_same(r.values(norm[1]), {1});
    for (double bad : {nan, infinity, -infinity})
        expect_same(r.values(call(r.graph, "global_norm", std::vector{x, r.given({bad})})[1]), {0});
}

TEST(Ir, ABadStepKeepsEveryBit) {
    for (double bad : {0.0, nan, infinity}) {
        Recording r;
        const Tensor p = r.kept("p", {2, -3});
        r.kept("other", {0.5});
        const Tensor x = r.given({0.25, bad}), scale = r.given({}, {1});
        const Tensor loss = sum(p * x, {0}) * scale;
        optimizer_update(adamw())(r.graph, loss, differentiate(r.graph, loss));
        r.feed.insert({{"learning_rate", {0.1}}, {"adamw.step", {0}}});
        for (const char* name : {"p", "other"})
            for (const char* moment : {"adamw.m.", "adamw.v."})
                r.feed[std::string(moment) + name] = Numbers(r.feed.at(name).size());
        const ReferenceRun run(r.graph, r.feed);
        ReferenceFeed after = run.next(r.feed);
        EXPECT_EQ(run.result("applied").values, Numbers{bad == 0 ? 1.0 : 0.0});
        if (bad == 0) {
            // The first step: m / (1 - beta1) is the gradient, the root of v / (1 - beta2) its size.
            EXPECT_NEAR(after.at("p")[0], 2 - 0.1 * 0.25 / (0.25 + 1e-8), 1e-12);
            EXPECT_EQ(after.at("adamw.step"), Numbers{1});
        } else {
            for (const auto& [name, values] : r.feed) expect_same(after.at(name), values);
        }
    }
}

TEST(Ir, SgdsFirstBufferIsTheGradientAndABadStepIsNotTheFirst) {
    Recording r;
    const Tensor p = r.kept("p", {2});
    const Tensor x = r.given({0.25});
    const Tensor loss = sum(p * x, {0});
    optimizer_update(sgd({.momentum = 0.5, .dampening = 0.25}))(r.graph, loss, differentiate(r.graph, loss));
    r.feed.insert({{"learning_rate", {1}}, {"sgd.step", {0}}, {"sgd.momentum.p", {0}}});
    double expected = 2;
    // Skipped; the gradient; 0.5 of it and 0.75 of the next; skipped; the same again.
    const std::vector<std::pair<double, double>> gradients_and_buffers = {
        {nan, 0}, {0.25, 0.25}, {-2, 0.125 - 1.5}, {infinity, -1.375}, {4, -0.6875 + 3}};
    for (const auto& [gradient, buffer] : gradients_and_buffers) {
        r.feed["x1"] = {gradient};
        r.feed = ReferenceRun(r.graph, r.feed).next(r.feed);
        if (std::isfinite(gradient)) expected -= buffer;
        expect_same(r.feed.at("sgd.momentum.p"), {buffer});
        expect_same(r.feed.at("p"), {expected});
    }
    EXPECT_EQ(r.feed.at("sgd.step"), Numbers{3});
}

TEST(Ir, SgdAddsDecayToTheGradientAndNesterovLooksAhead) {
    const auto after_one_step = [](const SgdOptions& options) {
        Recording r;
        const Tensor p = r.kept("p", {2});
        const Tensor loss = sum(p * r.given({0.25}), {0});
        optimizer_update(sgd(options))(r.graph, loss, differentiate(r.graph, loss));
        r.feed.insert({{"learning_rate", {1}}, {"sgd.step", {0}}, {"sgd.momentum.p", {0}}});
        return ReferenceRun(r.graph, r.feed).next(r.feed).at("p")[0];
    };
    EXPECT_EQ(after_one_step({}), 2 - 0.25);
    EXPECT_EQ(after_one_step({.weight_decay = 0.5}), 2 - (0.25 + 0.5 * 2));
    EXPECT_EQ(after_one_step({.weight_decay = 0.5, .decay_matrices_only = true}), 2 - 0.25);
    EXPECT_EQ(after_one_step({.momentum = 0.5, .nesterov = true}), 2 - (0.25 + 0.5 * 0.25));
}

}  // namespace
}  // namespace mantissa
