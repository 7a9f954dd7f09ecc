// Fused kernels one by one: their code as text, where they store, what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/random.h"
#include "mantissa/codegen/loop_nest.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/plan.h"
#include "tests/support/count_nodes.h"
#include "tests/support/fused_graph.h"
#include "tests/support/passes.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::fused;
using testing::given;
using testing::levels;
using testing::loaded;
using testing::run;

/// The pseudo-code of every fused node.
std::string code_of(const Graph& graph) {
    std::string text;
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        if (node.op->name == "fused")
            text += codegen::pseudo_code(codegen::lower(node.attributes.body("body").graph()));
    }
    return text;
}

std::vector<double> values(std::int64_t count, std::uint32_t which) {
    const RandomStream random{.seed = 3, .step = 0, .operation = which};
    std::vector<double> all;
    for (std::int64_t i = 0; i < count; ++i)
        all.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
    return all;
}

/// One case of a nest: the same code for any number of rows.
Graph masked_softmax(std::int64_t rows) {
    Graph graph;
    const Tensor x = given(graph, "x", {rows, 20, 20});
    const Tensor seen = less_equal(iota(graph, {20, 20}, 1), iota(graph, {20, 20}, 0));
    graph.add_result("y", softmax(select(seen, x * 0.5, constant(graph, -INFINITY))).value());
    return fused(graph);
}

TEST(Fused, AttentionsSoftmaxIsOneKernelOfThreeWalks) {
    EXPECT_EQ(code_of(masked_softmax(3)),
              "(in0: f32) -> (out0: f32), 20 columns\n"
              "v0 = 0.5\n"
              "v6 = -inf\n"
              "v12 = 1\n"
              "for each row r:\n"
              "  v4: i32 = r % 20\n"
              "  for each column c:\n"
              "    v3: i32 = c\n"
              "    v5: bool = less_equal(v3, v4)\n"
              "    v1 = in0[r, c]\n"
              "    v2 = mul(v1, v0)\n"
              "    v7 = select(v5, v2, v6)\n"
              "    v8 larger= v7\n"
              "  for each column c:\n"
              "    v3: i32 = c\n"
              "    v5: bool = less_equal(v3, v4)\n"
              "    v1 = in0[r, c]\n"
              "    v2 = mul(v1, v0)\n"
              "    v7 = select(v5, v2, v6)\n"
              "    v9 = sub(v7, v8)\n"
              "    v10 = exp_up_to_zero(v9)\n"
              "    scratch0[c] = v10\n"
              "    v11 += v10\n"
              "  v13 = div(v12, v11)\n"
              "  for each column c:\n"
              "    v10 = scratch0[c]\n"
              "    v14 = mul(v10, v13)\n"
              "    out0[r, c] = v14\n");
}

TEST(Fused, ANewBatchIsTheSameKernel) { EXPECT_EQ(code_of(masked_softmax(3)), code_of(masked_softmax(5))); }

TEST(Fused, OfLayerNormSavesItsStatisticsAndTheGradientUsesThem) {
    Graph graph;
    const Tensor x = given(graph, "x", {5, 7, 100}), dy = given(graph, "dy", {5, 7, 100});
    const Tensor gamma = given(graph, "gamma", {100});
    const auto statistics = std::vector{given(graph, "mean", {5, 7}), given(graph, "sigma", {5, 7})};
    const auto dx = call(graph, "layer_norm_grad", std::vector{dy, x, gamma, statistics[0], statistics[1]},
                         {{"epsilon", 1e-5}});
    for (std::size_t i = 0; i < dx.size(); ++i) graph.add_result("d" + std::to_string(i), dx[i].value());
    const std::string code = code_of(fused(graph));
    EXPECT_EQ(code.find("rsqrt"), std::string::npos) << code;
    // The two reductions of the gradient and the walk that uses them; statistics are read, not made.
    std::size_t walks = 0;
    for (std::size_t at = code.find("for each column"); at != std::string::npos;
         at = code.find("for each column", at + 1))
        ++walks;
    EXPECT_EQ(walks, 3u) << code;
}

/// The 16-bit formats: widened when loaded, rounded to nearest even when stored, and by `cast`.
TEST(Fused, SixteenBitFormatsRoundAsTheReferenceDoes) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const DType dtype : {DType::bf16, DType::f16}) {
        Graph graph;
        const Tensor x = given(graph, "x", {3, 21}), b = given(graph, "b", {21});
        const Tensor low = cast(x + b, dtype);
        graph.add_result("low", low.value());
        graph.add_result("back", (cast(low, DType::f32) * 2.0).value());
        ReferenceFeed feed{{"x", values(63, 1)}, {"b", values(21, 2)}};
        for (auto& [name, all] : feed)
            for (double& value : all) value = std::ldexp(std::nearbyint(std::ldexp(value, 12)), -12);
        feed["x"][5] = INFINITY;
        feed["x"][6] = NAN;
        const ReferenceRun reference(graph, feed);
        const Graph one = fused(graph);
        for (const std::string& level : levels()) {
            const auto device = device_at(level);
            const auto results = run(one, feed, *device);
            for (std::size_t r = 0; r < results.size(); ++r) {
                const auto got = loaded(results[r], one.type(one.results()[r].value).dtype);
                const auto& expected = reference[graph.results()[r].value].values;
                for (std::size_t i = 0; i < got.size(); ++i)
                    EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
                        << level << " " << name_of(dtype) << " " << i << ": " << got[i] << ", expected "
                        << expected[i];
            }
        }
    }
}

/// A cast of what lies in memory, or of a choice between such numbers, keeps subnormals at every level;
/// arithmetic flushes them before any rounding, be it by an instruction that takes subnormals for zero.
TEST(Fused, CastsToBf16KeepSubnormalsThatNoArithmeticMade) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor x = given(graph, "x", {2, 40}), y = given(graph, "y", {2, 40});
    graph.add_result("cast", cast(x, DType::bf16).value());
    const Tensor chosen = select(less(given(graph, "z", {2, 40}), y), y, x);
    graph.add_result("chosen", cast(chosen, DType::bf16).value());
    graph.add_result("halved", cast(x * 0.5, DType::bf16).value());
    ReferenceFeed feed{{"x", std::vector<double>(80)},
                       {"y", std::vector<double>(80, -1.0)},
                       {"z", std::vector<double>(80, 1.0)}};
    for (int i = 0; i < 80; ++i) feed["x"][static_cast<std::size_t>(i)] = std::ldexp(1 + i, -140);
    const Graph one = fused(graph);
    ASSERT_FALSE(code_of(one).empty());
    for (const std::string& level : levels()) {
        const auto results = run(one, feed, *device_at(level));
        for (std::size_t i = 0; i < 80; ++i) {
            const double x_i = feed["x"][i];
            EXPECT_EQ(loaded(results[0], DType::bf16)[i], rounded_to(x_i, DType::bf16)) << level << " " << i;
            EXPECT_EQ(loaded(results[1], DType::bf16)[i], rounded_to(x_i, DType::bf16)) << level << " " << i;
            EXPECT_EQ(loaded(results[2], DType::bf16)[i], 0) << level << " " << i;
        }
    }
}

/// y + a + a is y + 2 a, rounded once. Rounded twice, 2^24 + 1.117 + 1.117 would be 2^24 + 4 and
/// 2^25 + 2.32 + 2.32 would be 2^25 + 8.
TEST(Fused, ATermAddedTwiceIsDoubled) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor y = given(graph, "y", {2}), x = given(graph, "x", {2});
    const Tensor a = exp(x) - 1.0;
    graph.add_result("sum", (y * 1.0 + a + a).value());
    graph.add_result("a", a.value());
    const Graph one = fused(graph);
    EXPECT_NE(code_of(one).find("fma("), std::string::npos) << code_of(one);
    for (const std::string& level : levels()) {
        const auto results = run(one, {{"y", {0x1p24, 0x1p25}}, {"x", {0.75, 1.2}}}, *device_at(level));
        const auto sums = loaded(results[0], DType::f32), terms = loaded(results[1], DType::f32);
        const auto once = [&](double whole, double term) {
            return static_cast<double>(static_cast<float>(whole + 2 * term));
        };
        EXPECT_EQ(sums[0], once(0x1p24, terms[0])) << level;
        EXPECT_EQ(sums[1], once(0x1p25, terms[1])) << level;
    }
}

/// p = 1 + tanh(x) and 1 - tanh(x)^2 = p (2 - p) of one exponential. p errs as GELU's factor does (below), of
/// which the product takes |2 - 2 p|; three roundings more. A tanh that something else reads stays.
TEST(Fused, TanhAndItsDerivativeAreOneExponential) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    const auto graph_of = [](bool with_tanh) {
        Graph graph;
        const Tensor t = tanh(given(graph, "x", {4001}));
        graph.add_result("p", (t + 1.0).value());
        graph.add_result("slope", (-(t * t) + 1.0).value());
        if (with_tanh) graph.add_result("t", t.value());
        return fused(graph);
    };
    EXPECT_NE(code_of(graph_of(true)).find(" tanh("), std::string::npos) << code_of(graph_of(true));
    const Graph one = graph_of(false);
    EXPECT_EQ(code_of(one).find(" tanh("), std::string::npos) << code_of(one);
    const std::string code = code_of(one);
    EXPECT_EQ(code.find("one_plus_tanh"), code.rfind("one_plus_tanh")) << code;
    std::vector<double> given_x;
    for (int i = -2000; i < 2000; ++i) given_x.push_back(static_cast<double>(static_cast<float>(i) / 128));
    given_x.push_back(NAN);
    for (const std::string& level : levels()) {
        const auto results = run(one, {{"x", given_x}}, *device_at(level));
        const auto p = loaded(results[0], DType::f32), slope = loaded(results[1], DType::f32);
        for (std::size_t i = 0; i < 4000; ++i) {
            const double x = given_x[i], expected = 2 / (1 + std::exp(-2 * x));
            const double bound = (8 + 2 * std::abs(x)) * 0x1p-24 * expected + 0x1p-125;
            ASSERT_NEAR(p[i], expected, bound) << level << ", x = " << x;
            const double product = expected * (2 - expected);
            ASSERT_NEAR(slope[i], product,
                        std::abs(2 - 2 * expected) * bound + bound * bound + 3 * 0x1p-24 * product)
                << level << ", x = " << x;
        }
        EXPECT_TRUE(std::isnan(p[4000]) && std::isnan(slope[4000])) << level;
    }
}

/// GELU by its formula against FP64, and a NaN whose bits are all ones through it and through 1 + tanh. u,
/// the argument of tanh, has four roundings and its factor one more, each of which moves the exponential by
/// up to 2 u of its own size; eight more for everything else.
TEST(Fused, GeluKeepsItsDigitsAndNaN) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor x = given(graph, "x", {4001});
    const Tensor u = (x + x * x * x * 0.044715) * 0.7978845608028654;
    graph.add_result("gelu", (x * 0.5 * (tanh(u) + 1.0)).value());
    graph.add_result("tanh", (tanh(x) + 1.0).value());
    const Graph one = fused(graph);
    EXPECT_NE(code_of(one).find("times_one_plus_tanh"), std::string::npos) << code_of(one);
    std::vector<double> given_x;
    for (int i = -2000; i < 2000; ++i) given_x.push_back(static_cast<double>(static_cast<float>(i) / 128));
    given_x.push_back(NAN);
    for (const std::string& level : levels()) {
        const auto results = run(one, {{"x", given_x}}, *device_at(level));
        const auto y = loaded(results[0], DType::f32);
        for (std::size_t i = 0; i < 4000; ++i) {
            const double v = given_x[i], inner = 0.7978845608028654 * (v + 0.044715 * v * v * v);
            const double expected = v / (1 + std::exp(-2 * inner));
            const double bound =
                (8 + 10 * std::abs(inner)) * 0x1p-24 * std::abs(expected) + std::abs(v) * 0x1p-126;
            ASSERT_NEAR(y[i], expected, bound) << level << ", x = " << v;
        }
        EXPECT_TRUE(std::isnan(y[4000])) << level;
        EXPECT_TRUE(std::isnan(loaded(results[1], DType::f32)[4000])) << level;
    }
}

/// Large outputs go past the caches; each element is written all the same, at any alignment of the rows.
TEST(Fused, StreamsLargeOutputsWhole) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const std::int64_t columns : {1024, 1000, 1037}) {
        Graph graph;
        const Tensor x = given(graph, "x", {1100, columns}), b = given(graph, "b", {columns});
        graph.add_result("y", ((x + b) * 2.0).value());
        const ReferenceFeed feed{{"x", values(1100 * columns, 1)}, {"b", values(columns, 2)}};
        const auto device = device_at(levels().back());
        const auto got = loaded(run(fused(graph), feed, *device)[0], DType::f32);
        for (std::size_t i = 0; i < got.size(); ++i) {
            const auto sum = static_cast<float>(feed.at("x")[i]) +
                             static_cast<float>(feed.at("b")[i % static_cast<std::size_t>(columns)]);
            ASSERT_EQ(got[i], static_cast<double>(2 * sum)) << columns << " columns, element " << i;
        }
    }
}

/// Probabilities in FP32 that the forward pass needs in BF16 and the backward pass in FP32: the scores are
/// kept, in BF16, and the FP32 numbers are never in memory.
Graph probabilities_and_gradient() {
    Graph graph;
    const Tensor q = given(graph, "q", {64, 32}, DType::bf16), k = given(graph, "k", {64, 32}, DType::bf16),
                 v = given(graph, "v", {64, 32}, DType::bf16);
    const Tensor y = softmax(cast(matmul(q, k, {.transpose_b = true}) * 0.5, DType::f32));
    const Tensor o = matmul(cast(y, DType::bf16), v);
    graph.add_result("o", o.value());
    Origin backward = graph.origin;
    backward.stage = Stage::backward;
    const OriginScope scope(graph, backward);
    const Tensor dy = cast(matmul(o, v, {.transpose_b = true}), DType::f32);  // of |o|^2 / 2
    graph.add_result("ds", (y * (dy - sum(y * dy, {1}, KeepAxes::yes))).value());
    return graph;
}

TEST(Fused, WhatTheBackwardPassAloneWouldReadIsComputedAgain) {
    const Graph plain = simplify(expand(probabilities_and_gradient(),
                                        [](const Graph&, const Node& n) { return n.op->name == "softmax"; }));
    const Fusion fusion = fuse(plain, testing::any_size());
    EXPECT_EQ(fusion.recomputed, 1);
    std::vector<std::string> outputs;
    for (std::size_t id = 0; id < fusion.graph.size(); ++id) {
        const Node& node = fusion.graph.node(static_cast<NodeId>(id));
        if (node.op->name != "fused") continue;
        for (const Type& type : node.outputs) outputs.push_back(type.text());
    }
    // Forward: the largest of each row, the sum of exponentials, the probabilities. Backward: the result.
    EXPECT_EQ(outputs, (std::vector<std::string>{"f32[64, 1]", "f32[64, 1]", "bf16[64, 64]", "f32[64, 64]"}));
}

TEST(Fused, SumsOfMoreColumnsThanStayOnTheChipAreByThemselves) {
    Machine chip = testing::any_size();
    chip.target.fusion.min_bytes_saved = 1;
    chip.target.fusion.max_columns_summed = 40;
    for (const std::int64_t columns : {40, 41}) {
        Graph graph;
        const Tensor x = given(graph, "x", {64, columns});
        const Tensor y = x * 2.0 + sum(x, {1}, KeepAxes::yes);
        graph.add_result("y", y.value());
        graph.add_result("sums", sum(y, {0}).value());
        const Fusion fusion = fuse(graph, chip);
        EXPECT_EQ(testing::count(fusion.graph, "sum"), columns == 40 ? 0 : 1);
        EXPECT_EQ(testing::count(fusion.graph, "fused"), 1);
        if (columns == 40) continue;
        ASSERT_FALSE(fusion.refused.empty());
        EXPECT_EQ(fusion.refused.front().reason, "sums over rows of 41 columns do not stay on the chip");
    }
}

/// Written over an operand that nobody reads later, and right all the same; not over one that is.
TEST(Fused, MayBeWrittenOverAnOperand) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor a = given(graph, "a", {37, 37}), b = given(graph, "b", {37, 37}),
                 bias = given(graph, "bias", {37});
    const Tensor y = softmax(matmul(a, b) + bias);
    graph.add_result("y", y.value());
    const Graph one = fused(graph);
    const ReferenceFeed feed{{"a", values(37 * 37, 1)}, {"b", values(37 * 37, 2)}, {"bias", values(37, 3)}};
    const ReferenceRun reference(graph, feed);
    const auto& expected = reference[y.value()].values;
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        const Plan plan(one, *device);
        NodeId product = -1;
        for (std::size_t id = 0; id < one.size(); ++id)
            if (one.node(static_cast<NodeId>(id)).op->name == "matmul") product = static_cast<NodeId>(id);
        EXPECT_EQ(plan.memory().place(one.results()[0].value).offset,
                  plan.memory().place({product, 0}).offset);
        const auto got = loaded(run(one, feed, *device)[0], DType::f32);
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << level;
    }
}

/// Runs a graph of exact numbers fused, at every level, against the reference.
void expect_exact_nest(const Graph& graph, const ReferenceFeed& feed) {
    const ReferenceRun reference(graph, feed);
    const Graph one = fused(graph);
    for (const std::string& level : levels()) {
        const auto results = run(one, feed, *device_at(level));
        for (std::size_t r = 0; r < results.size(); ++r) {
            const Value result = graph.results()[r].value;
            EXPECT_EQ(loaded(results[r], graph.type(result).dtype), reference[result].values)
                << level << ", result " << r;
        }
    }
}

/// A counter that stands beside a row's sum counts rows, though its only axis is its last.
TEST(Fused, ACounterBesideSumsOfRowsCountsRows) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const Shape& shape : {Shape{33, 3}, Shape{2, 5, 3}, Shape{3, 3}, Shape{1, 17}, Shape{17, 1}}) {
        Graph graph;
        const Tensor x = given(graph, "x", shape), sums = sum(x, {-1});
        graph.add_result("y", (sums + cast(iota(graph, sums.shape(), sums.rank() - 1), DType::f32)).value());
        std::vector<double> numbers;
        for (std::int64_t i = 0; i < shape.elements(); ++i) numbers.push_back(static_cast<double>(i % 7));
        expect_exact_nest(graph, {{"x", numbers}});
    }
}

/// A counter along an axis of one is 0; what is made of it keeps the axes that it alone has.
TEST(Fused, ACounterOfOneKeepsItsAxes) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 1}, Shape{1, 5}}) {
        Graph graph;
        const Tensor x = given(graph, "x", {}), z = given(graph, "z", {1});
        const Tensor seen = less_equal(iota(graph, shape, 1), iota(graph, shape, 0));
        graph.add_result("y", (select(seen, x * 2.0, constant(graph, -1.5)) + z).value());
        graph.add_result("counter", (x + cast(iota(graph, shape, 1), DType::f32)).value());
        expect_exact_nest(graph, {{"x", {3}}, {"z", {1}}});
    }
}

/// A total of rows' sums is a sum over rows, too, and added up in FP32.
TEST(Fused, ATotalInSixteenBitsIsNoPartOfANest) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    for (const DType dtype : {DType::f16, DType::bf16}) {
        Graph graph;
        const Tensor x = given(graph, "x", {4, 6}, dtype);
        const Tensor total = sum(sum(x, {1}), {0});
        graph.add_result("total", total.value());
        graph.add_result("row", sum(sum(given(graph, "r", {17}, dtype), {0}, KeepAxes::yes), {0}).value());
        const Fusion fusion = fuse(simplify(graph), testing::any_size());
        EXPECT_EQ(std::count_if(fusion.refused.begin(), fusion.refused.end(),
                                [](const PassRefusal& refusal) {
                                    return refusal.reason.starts_with("sums over rows are added in f32, not");
                                }),
                  2);
        if (dtype == DType::bf16) {
            std::vector<double> ones(24, 1.0), more(17, 1.0);
            expect_exact_nest(graph, {{"x", ones}, {"r", more}});
        }
    }
}

/// A nest's results are what it computes, even where that changes nothing.
TEST(Fused, AResultThatEqualsAnOperandIsStillComputed) {
    if (!device_at(levels().back())->target().cannot_compile.empty())
        GTEST_SKIP() << "this build has no compiler for fused kernels";
    Graph graph;
    const Tensor x = given(graph, "x", {8, 6}), c = given(graph, "c", {8, 6});
    const Tensor s(
        graph,
        graph.add_state(
            {.kind = State::Kind::optimizer, .name = "s", .type = {DType::f32, {8, 6}}, .initializer = {}}));
    graph.add_result("choice", select(less(c, c * 2.0), x, x).value());
    graph.add_result("product", (s * 1.0).value());
    graph.add_result("twice", (-(-c)).value());
    graph.add_update(graph.find_state("s"), (s + x).value());
    std::vector<double> numbers;
    for (int i = 0; i < 48; ++i) numbers.push_back(i % 5 - 2);
    const auto results = run(fused(graph), {{"x", numbers}, {"c", numbers}}, *device_at(levels().back()));
    EXPECT_EQ(loaded(results[0], DType::f32), numbers);
    EXPECT_EQ(loaded(results[1], DType::f32), std::vector<double>(48, 0.0));  // as it was before the run
    EXPECT_EQ(loaded(results[2], DType::f32), numbers);
}

TEST(Fused, WhatIsNotFusedSaysWhy) {
    Graph graph;
    const Tensor x = given(graph, "x", {4, 6});
    const Tensor total = sum(tanh(x), {0});  // [6], finished when all rows are
    graph.add_result("y", (tanh(x) * total).value());
    const Fusion fusion = fuse(simplify(graph), testing::any_size());
    ASSERT_FALSE(fusion.refused.empty());
    EXPECT_EQ(fusion.refused[0].reason, "a sum over rows is not finished inside the nest");
    const Fusion small = fuse(simplify(graph));
    EXPECT_EQ(small.kernels, 0);
    EXPECT_EQ(small.refused.back().reason,
              "a kernel would save 0 bytes, less than the 32768 that compiling it is worth");
}

}  // namespace
}  // namespace mantissa
