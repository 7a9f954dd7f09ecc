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

/// Losses of PyTorch, and their gradients by the logits; those of rows times 1, 2 and 3.
struct KnownLoss {
    CrossEntropyOptions options;
    Numbers losses, gradient;
};

struct Losses : Recording {
    const Tensor z = given({3, 1, 4}, {1, -2, 0.5, 3, 0, 1, 2, -1, -0.5, 0.25, 1.5, 2});
    const Tensor weights = given({1, 0.5, 2, 3});

    void expect(const Tensor& targets, const std::vector<KnownLoss>& all) {
        for (const KnownLoss& known : all) {
            SCOPED_TRACE(&known - all.data());
            const Tensor loss = cross_entropy(z, targets, known.options);
            const bool is_one = known.losses.size() == 1;
            EXPECT_EQ(loss.shape(), is_one ? Shape() : Shape({3, 1}));
            const Numbers losses = values(loss);
            const Numbers found = gradient(is_one ? loss : loss * given({3, 1}, {1, 2, 3}), z);
            for (std::size_t i = 0; i < losses.size(); ++i)
                EXPECT_NEAR(losses[i], known.losses[i], 4e-6) << i;
            for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(found[i], known.gradient[i], 1e-6) << i;
        }
    }
};

TEST(Ir, CrossEntropyWithOptionsIsThatOfPyTorch) {
    Losses r;
    const Tensor weights = r.weights;
    r.expect(r.given({3, 1}, {2, 0, 3}, DType::i32),
             {
                 {{},
                  {1.921435},
                  {0.03685125, 0.001834716, -0.3109819, 0.272296, -0.3042852, 0.07896094, 0.2146381,
                   0.0106862, 0.0146917, 0.03110233, 0.1085578, -0.1543518}},
                 {{.class_weights = weights},
                  {1.61838},
                  {0.03685125, 0.001834716, -0.3109819, 0.272296, -0.1521426, 0.03948047, 0.107319,
                   0.005343101, 0.02203755, 0.04665349, 0.1628367, -0.2315277}},
                 {{.label_smoothing = 0.2},
                  {1.958935},
                  {0.02018458, -0.01483195, -0.2609819, 0.2556293, -0.2542852, 0.06229427, 0.1979714,
                   -0.005980466, -0.001974968, 0.01443566, 0.09189112, -0.1043518}},
                 {{.ignore_index = 0},
                  {1.662057},
                  {0.05527688, 0.002752074, -0.4664729, 0.4084439, 0, 0, 0, 0, 0.02203755, 0.04665349,
                   0.1628367, -0.2315277}},
                 {{.class_weights = weights, .label_smoothing = 0.2, .ignore_index = 0},
                  {1.355531},
                  {0.03256319, -0.002880903, -0.3141841, 0.2845018, 0, 0, 0, 0, 0.01402093, 0.0458523,
                   0.157492, -0.2173652}},
                 {{.reduction = Reduction::sum},
                  {5.764304},
                  {0.1105538, 0.005504147, -0.9329458, 0.8168879, -0.9128557, 0.2368828, 0.6439143, 0.0320586,
                   0.04407509, 0.09330698, 0.3256733, -0.4630554}},
                 {{.class_weights = weights, .reduction = Reduction::sum},
                  {9.710278},
                  {0.2211075, 0.01100829, -1.865892, 1.633776, -0.9128557, 0.2368828, 0.6439143, 0.0320586,
                   0.1322253, 0.2799209, 0.97702, -1.389166}},
                 {{.label_smoothing = 0.2, .reduction = Reduction::sum},
                  {5.876804},
                  {0.06055375, -0.04449585, -0.7829458, 0.7668879, -0.7628557, 0.1868828, 0.5939143,
                   -0.0179414, -0.005924905, 0.04330698, 0.2756733, -0.3130554}},
                 {{.ignore_index = 0, .reduction = Reduction::sum},
                  {3.324114},
                  {0.1105538, 0.005504147, -0.9329458, 0.8168879, 0, 0, 0, 0, 0.04407509, 0.09330698,
                   0.3256733, -0.4630554}},
                 {{.class_weights = weights,
                   .label_smoothing = 0.2,
                   .ignore_index = 0,
                   .reduction = Reduction::sum},
                  {6.777657},
                  {0.162816, -0.01440452, -1.570921, 1.422509, 0, 0, 0, 0, 0.07010463, 0.2292615, 0.7874599,
                   -1.086826}},
                 {{.class_weights = weights, .reduction = Reduction::none},
                  {5.404507, 2.44019, 1.865581},
                  {0.2211075, 0.01100829, -1.865892, 1.633776, -1.825711, 0.4737656, 1.287829, 0.06411721,
                   0.3966759, 0.8397628, 2.93106, -4.167499}},
                 {{.label_smoothing = 0.2, .reduction = Reduction::none},
                  {2.677253, 2.34019, 0.8593604},
                  {0.06055375, -0.04449585, -0.7829458, 0.7668879, -1.525711, 0.3737656, 1.187829,
                   -0.03588279, -0.01777472, 0.1299209, 0.82702, -0.9391663}},
                 {{.ignore_index = 0, .reduction = Reduction::none},
                  {2.702253, 0, 0.6218604},
                  {0.1105538, 0.005504147, -0.9329458, 0.8168879, 0, 0, 0, 0, 0.1322253, 0.2799209, 0.97702,
                   -1.389166}},
                 {{.class_weights = weights,
                   .label_smoothing = 0.2,
                   .ignore_index = 0,
                   .reduction = Reduction::none},
                  {4.864338, 0, 1.91332},
                  {0.162816, -0.01440452, -1.570921, 1.422509, 0, 0, 0, 0, 0.2103139, 0.6877845, 2.36238,
                   -3.260478}},
             });
}

TEST(Ir, CrossEntropyOfPartsOfClassesIsThatOfPyTorch) {
    Losses r;
    const Tensor weights = r.weights;
    r.expect(r.given({3, 1, 4}, {0.5, 0.25, 0.25, 0, 0, 0, 0, 1, 0.125, 0.5, 0.125, 0.25}),
             {
                 {{},
                  {2.796435},
                  {-0.1298154, -0.08149862, -0.06098192, 0.272296, 0.02904811, 0.07896094, 0.2146381,
                   -0.3226471, -0.02697497, -0.1355643, 0.06689112, 0.09564819}},
                 {{.class_weights = weights, .label_smoothing = 0.2},
                  {4.600726},
                  {-0.1048572, -0.03941914, -0.1392862, 0.2835625, 0.06248942, 0.2068352, 0.5515555,
                   -0.8208801, -0.02906433, -0.03067919, 0.05469484, 0.005048675}},
                 {{.reduction = Reduction::sum},
                  {8.389304},
                  {-0.3894462, -0.2444959, -0.1829458, 0.8168879, 0.08714432, 0.2368828, 0.6439143,
                   -0.9679414, -0.08092491, -0.406693, 0.2006733, 0.2869446}},
                 {{.class_weights = weights, .label_smoothing = 0.2, .reduction = Reduction::sum},
                  {13.80218},
                  {-0.3145717, -0.1182574, -0.4178586, 0.8506876, 0.1874683, 0.6205057, 1.654666, -2.46264,
                   -0.08719299, -0.09203756, 0.1640845, 0.01514602}},
                 {{.reduction = Reduction::none},
                  {3.077253, 3.44019, 1.87186},
                  {-0.3894462, -0.2444959, -0.1829458, 0.8168879, 0.1742886, 0.4737656, 1.287829, -1.935883,
                   -0.2427747, -1.220079, 0.60202, 0.8608337}},
                 {{.class_weights = weights, .label_smoothing = 0.2, .reduction = Reduction::none},
                  {3.02276, 8.974517, 1.804901},
                  {-0.3145717, -0.1182574, -0.4178586, 0.8506876, 0.3749365, 1.241011, 3.309333, -4.925281,
                   -0.261579, -0.2761127, 0.4922536, 0.04543807}},
             });
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
            // The first step: m / (1 - beta1) is the gradient, the root of v / (1 - beta2) its size, each but
            // for the share that a moment takes, which is 1 - beta with beta in FP32.
            const auto share = [](double beta) {
                return (1 - static_cast<double>(static_cast<float>(beta))) / (1 - beta);
            };
            const double m = 0.25 * share(AdamWOptions{}.beta1),
                         v = 0.25 * std::sqrt(share(AdamWOptions{}.beta2));
            EXPECT_NEAR(after.at("p")[0], 2 - 0.1 * m / (v + 1e-8), 1e-12);
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
