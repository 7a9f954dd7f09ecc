// Padding as a layout: the same loss, gradients and results to the last bit of the reference, by views alone;
// what cannot be padded so stays, with a reason.
#include "mantissa/passes/pad.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>

#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/simplify.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/count_nodes.h"
#include "tests/support/gpt2.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_draws.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

using testing::count;
using testing::show_gradients;

const nn::Gpt2Config ugly_gpt2 = testing::small_gpt2(1, 16, 61);
const TraceModel traced = testing::traced_gpt2(ugly_gpt2, {2, 5});

PipelineOptions options_of(const std::string& policy, bool chunked, bool matched, bool padded) {
    PipelineOptions options;
    options.policy = find_policy(policy);
    options.fuse_linear_cross_entropy = chunked;
    options.match_attention = matched;
    options.pad = padded;
    return options;
}

/// A machine that likes extents of multiples of 8.
Machine by_eights() { return {.target = {.extent_multiple = 8}}; }

ReferenceFeed feed_of_layers(const Graph& graph) {
    ReferenceFeed feed;
    std::uint32_t which = 1;
    for (const NodeId id : graph.inputs()) {
        const Node& node = graph.node(id);
        const bool is_index = node.outputs[0].dtype == DType::i32;
        feed[node.attributes.word("name")] = testing::values_of(
            {node.outputs[0], is_index ? testing::Values::index : testing::Values::normal, 29}, which++);
    }
    for (const State& state : graph.states()) {
        feed[state.name] = testing::values_of({state.type}, which++);
        for (double& x : feed[state.name]) x *= 0.5;
    }
    return feed;
}

/// Zeros at the end of a sum change no bit of it.
void expect_same_results(const Graph& plain, const Graph& padded, const std::string& what) {
    const ReferenceFeed feed = feed_of_layers(plain);
    const ReferenceRun x(plain, feed), y(padded, feed);
    ASSERT_EQ(plain.results().size(), padded.results().size()) << what;
    for (const Result& result : plain.results()) {
        EXPECT_EQ(y.result(result.name).type, x.result(result.name).type) << what << ": " << result.name;
        EXPECT_EQ(y.result(result.name).values, x.result(result.name).values) << what << ": " << result.name;
    }
    EXPECT_EQ(y.next(feed), x.next(feed)) << what;
}

/// No padding and no cut of it is an operation: all are views.
void expect_views(const Graph& plain, const Graph& padded, const std::string& what) {
    const auto copies = [](const Graph& graph) {
        int found = 0;
        for (std::size_t id = 0; id < graph.size(); ++id) {
            const Node& node = graph.node(static_cast<NodeId>(id));
            found += (node.op->name == "pad" || node.op->name == "slice") && !is_view(graph, node);
        }
        return found;
    };
    EXPECT_EQ(copies(padded), copies(plain)) << what;
}

TEST(Pad, KeepsEveryResultOfGpt2UnderEveryPolicy) {
    for (const char* policy : {"fp32", "tf32", "bf16", "fp16"})
        for (const bool chunked : {false, true})
            for (const bool matched : {false, true}) {
                const std::string what = fmt::format("{}, {}, {}", policy, chunked, matched);
                const auto built = [&](bool padded) {
                    return build_training_step(traced, show_gradients,
                                               options_of(policy, chunked, matched, padded), by_eights());
                };
                const BuiltGraph plain = built(false), padded = built(true);
                ASSERT_EQ(padded.padded.size(), 1u) << what;
                EXPECT_EQ(padded.padded[0].name, "wte.weight");
                EXPECT_EQ(padded.padded[0].rows, ugly_gpt2.vocabulary);
                EXPECT_EQ(padded.padded[0].zero_rows, 3);
                EXPECT_EQ(count(padded.graph, "linear_cross_entropy"), chunked) << what;
                expect_same_results(plain.graph, padded.graph, what);
                expect_views(plain.graph, padded.graph, what);
                for (std::size_t id = 0; id < padded.graph.size(); ++id)
                    for (const Type& type : padded.graph.node(static_cast<NodeId>(id)).outputs)
                        EXPECT_NE(type.shape.elements(), 2 * 5 * ugly_gpt2.vocabulary)
                            << what << ": logits of ugly width";
            }
}

TEST(Pad, OfAForwardPassPadsTheLogitsAlone) {
    for (const bool chunked : {false, true}) {
        const Graph plain =
            build_evaluation(traced, options_of("bf16", chunked, true, false), by_eights()).graph;
        const Graph padded =
            build_evaluation(traced, options_of("bf16", chunked, true, true), by_eights()).graph;
        expect_same_results(plain, padded, "evaluation");
        expect_views(plain, padded, "evaluation");
        EXPECT_EQ(padded.states()[0].zero_rows, 3);
        EXPECT_EQ(padded.states()[0].type, plain.states()[0].type);
    }
}

TEST(Pad, LeavesLogitsThatAreResultsSoThatNoneIsEverSampled) {
    Graph graph;
    const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {2, 5}}));
    graph.add_result("logits", nn::gpt2_logits(ugly_gpt2, tokens).value());
    const Padded padded = pad_parameters(graph, {.multiple = 8});
    EXPECT_TRUE(padded.padded.empty());
    EXPECT_EQ(padded.refused[0].text(),
              "wte.weight: its rows become axis 2 of f32[2, 5, 61], which the run reads: zeros there would "
              "have to be cut out by a copy");
    EXPECT_EQ(print(padded.graph), print(graph));
}

TEST(Pad, IsIdempotent) {
    const Graph once =
        build_training_step(traced, show_gradients, options_of("bf16", false, false, true), by_eights())
            .graph;
    const Padded twice = pad_parameters(once, {.multiple = 8});
    EXPECT_TRUE(twice.padded.empty());
    EXPECT_EQ(twice.refused[0].text(), "wte.weight: 3 rows of zeros lie behind it already");
    EXPECT_EQ(print(twice.graph), print(once));
}

/// A linear layer over N = 6 rows of C = 4 with a parameter w and, where it is asked for, a bias of 31.
struct LinearLayer {
    Graph graph;
    Tensor x, w, bias, targets;

    explicit LinearLayer(Shape shape = {31, 4}) {
        x = {graph, graph.add_input("x", {DType::f32, {6, 4}})};
        w = {graph,
             graph.add_state({.name = "w", .type = {DType::f32, std::move(shape)}, .initializer = {}})};
        bias = {graph, graph.add_state({.name = "b", .type = {DType::f32, {31}}, .initializer = {}})};
        targets = {graph, graph.add_input("targets", {DType::i32, {6}})};
    }
};

TEST(Pad, MakesThisOfALinearLayerAndItsLoss) {
    LinearLayer layer;
    const Tensor logits = matmul(layer.x, layer.w, {.transpose_b = true, .bias = layer.bias});
    const Tensor loss = cross_entropy(logits, layer.targets);
    layer.graph.add_result("loss", loss.value());
    for (const ParameterGradient& parameter : differentiate(layer.graph, loss))
        layer.graph.add_result("gradient", parameter.gradient.value());
    const Graph before = simplify(layer.graph);
    const Padded padded = pad_parameters(before, {.multiple = 8});
    verify(padded.graph, "pad");
    EXPECT_EQ(print(padded.graph),
              "%0: f32[6, 4] = input() {dtype=f32, name=x, shape=[6, 4]}\n"
              "%1: f32[31, 4] = state() {dtype=f32, name=w, shape=[31, 4], zero_rows=1}\n"
              "%2: f32[31] = state() {dtype=f32, name=b, shape=[31], zero_rows=1}\n"
              "%3: i32[6] = input() {dtype=i32, name=targets, shape=[6]}\n"
              "%4: f32[32, 4] = pad(%w) {after=1, axis=0, before=0}\n"
              "%5: f32[32] = pad(%b) {after=1, axis=0, before=0}\n"
              "%6: f32[6, 32] = matmul(%x, %4, %5) {transpose_a=false, transpose_b=true}\n"
              "%7: f32[], f32[6] = cross_entropy(%6, %targets) {classes=31}\n"
              "%9: f32[6, 32] = cross_entropy_grad(1, %6, %targets, %7.1) {classes=31}  # (backward)\n"
              "%10: f32[32, 4] = matmul(%9, %x) {transpose_a=true, transpose_b=false}  # (backward)\n"
              "%11: f32[32] = sum(%9) {axes=[0], keep=false}  # (backward)\n"
              "%12: f32[31, 4] = slice(%10) {axis=0, start=0, stop=31}  # (backward)\n"
              "%13: f32[31] = slice(%11) {axis=0, start=0, stop=31}  # (backward)\n"
              "result loss = %7.0\n"
              "result gradient = %12\n"
              "result gradient = %13\n");
    ASSERT_EQ(padded.refused.size(), 1u);
    EXPECT_EQ(padded.refused[0].text(), "b: f32[31] is no matrix");
    expect_views(before, padded.graph, "linear layer");
}

TEST(Pad, GivesReadersThatKnowNothingOfTheZerosTheRowsBeforeThem) {
    LinearLayer layer;
    const Tensor short_w = cast(layer.w, DType::bf16);
    const Tensor ids = reshape(layer.targets, {2, 3});
    layer.graph.add_result("rows", embedding(short_w, ids).value());
    layer.graph.add_result("largest", max(layer.w, {0, 1}).value());
    const Tensor y = matmul(cast(layer.x, DType::bf16), short_w, {.transpose_b = true});
    // Summed over its longer axis, and over the other one.
    layer.graph.add_result("sums", sum(cast(y, DType::f32) * 3.0, {1}).value());
    layer.graph.add_result("columns", sum(transpose(-y, {1, 0}), {1}).value());
    const Padded padded = pad_parameters(layer.graph, {.multiple = 8});
    verify(padded.graph, "pad");
    EXPECT_EQ(padded.padded.size(), 1u);
    EXPECT_EQ(count(padded.graph, "slice"), 2);  // of the cast and of the sum of columns
    expect_same_results(layer.graph, padded.graph, "readers");
    expect_views(layer.graph, padded.graph, "readers");
}

struct Unpadded {
    const char* reason;
    Shape shape = {31, 4};
    Tensor (*result)(const LinearLayer&) = nullptr;
};

Tensor product(const LinearLayer& layer) { return matmul(layer.x, layer.w, {.transpose_b = true}); }

const Unpadded unpadded[] = {
    {.reason = "its 32 rows are a multiple of 8", .shape = {32, 4}, .result = product},
    {.reason = "7 rows of zeros behind its 9 are more than one in 16", .shape = {9, 4}, .result = product},
    {.reason = "f32[31, 1, 4] is no matrix",
     .shape = {31, 1, 4},
     .result =
         [](const LinearLayer& layer) {
             return matmul(layer.x, reshape(layer.w, {31, 4}), {.transpose_b = true});
         }},
    {.reason = "no contraction reads it",
     .result = [](const LinearLayer& layer) { return embedding(layer.w, layer.targets); }},
    {.reason = "'matmul' sums over its rows, and the other operand has no zeros there",
     .result =
         [](const LinearLayer& layer) {
             return matmul(constant(layer.x.graph(), 1.0, DType::f32, {6, 31}), layer.w);
         }},
    {.reason = "its rows become axis 1 of f32[6, 31], which the run reads: zeros there would have to be cut "
               "out by a copy",
     .result = product},
    {.reason =
         "its rows become axis 1 of f32[6, 31], which 'softmax' reads: zeros there would have to be cut "
         "out by a copy",
     .result = [](const LinearLayer& layer) { return softmax(product(layer)); }},
    {.reason =
         "its rows become axis 1 of f32[6, 31], which 'exp' reads: zeros there would have to be cut out "
         "by a copy",
     .result = [](const LinearLayer& layer) { return exp(product(layer)); }},
    {.reason =
         "its rows become axis 1 of f32[6, 31], which 'mul' reads: zeros there would have to be cut out "
         "by a copy",
     .result = [](const LinearLayer& layer) { return product(layer) * layer.bias; }},
    {.reason =
         "its rows become axis 1 of f32[6, 31], which 'reshape' reads: zeros there would have to be cut "
         "out by a copy",
     .result = [](const LinearLayer& layer) { return reshape(product(layer), {186}); }},
    {.reason = "its rows become axis 1 of f32[6, 31], which 'matmul' reads: zeros there would have to be cut "
               "out by a copy",
     .result =
         [](const LinearLayer& layer) {
             return matmul(product(layer), constant(layer.x.graph(), 1.0, DType::f32, {31, 2}));
         }},
};

TEST(Pad, LeavesWhatItCannotProveHarmlessAndSaysWhy) {
    for (const Unpadded& test : unpadded) {
        LinearLayer layer(test.shape);
        layer.graph.add_result("y", test.result(layer).value());
        const Padded padded = pad_parameters(layer.graph, {.multiple = 8});
        EXPECT_TRUE(padded.padded.empty()) << test.reason;
        ASSERT_EQ(padded.refused.size(), 2u) << test.reason;
        EXPECT_EQ(padded.refused[0].reason, test.reason);
        EXPECT_EQ(print(padded.graph), print(layer.graph)) << test.reason;
    }
}

/// Layers with ugly parameters, over one another in any order, with what a rule passes on and what it
/// does not between them, and a loss or none.
class RandomLayers {
  public:
    explicit RandomLayers(std::uint64_t seed) : random_{.seed = seed, .step = 0, .operation = 0} {
        Tensor x(graph, graph.add_input("x", {DType::f32, {6, 31}}));
        for (std::size_t layer = 0; layer < 4; ++layer) {
            x = linear(x, layer);
            for (std::size_t i = below(3); i > 0; --i) x = between(x);
        }
        const Tensor targets(graph, graph.add_input("targets", {DType::i32, {x.dim(0)}}));
        const Tensor loss = below(3) == 0 ? sum(x, {0, 1}) : cross_entropy(x, targets);
        graph.add_result("loss", loss.value());
        for (const ParameterGradient& parameter : differentiate(graph, loss))
            graph.add_result(fmt::format("gradient {}", parameter.state), parameter.gradient.value());
    }

    Graph graph;

  private:
    std::size_t below(std::size_t limit) { return random_.bits(next_++) % limit; }

    Tensor linear(Tensor x, std::size_t layer) {
        const std::int64_t rows = std::array<std::int64_t, 4>{31, 32, 62, 47}[below(4)];
        const auto parameter = [&](const std::string& name, Shape shape) {
            return Tensor(graph, graph.add_state({.name = fmt::format("{}{}", name, layer),
                                                  .type = {DType::f32, std::move(shape)},
                                                  .initializer = {}}));
        };
        MatmulOptions options{.transpose_b = below(4) != 0};
        const std::int64_t inner = x.dim(-1);
        const Tensor w = parameter("w", options.transpose_b ? Shape{rows, inner} : Shape{inner, rows});
        if (below(2) == 0) options.bias = parameter("b", {rows});
        return matmul(x, w, options);
    }

    Tensor between(Tensor x) {
        switch (below(8)) {
            case 0:
                return gelu(x);
            case 1:
                return x * 0.5;
            case 2:
                return -x;
            case 3:
                return cast(cast(x, DType::bf16), DType::f32);
            case 4:
                return transpose(x, {1, 0});
            case 5:
                return reshape(reshape(x, {1, x.dim(0), x.dim(1), 1}), x.shape());
            case 6:
                return x - mean(x, {-1}, KeepAxes::yes);
            default:
                return x / 3.0;
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
};

TEST(Pad, KeepsEveryBitOfRandomLayersAndIsIdempotent) {
    std::size_t padded_parameters = 0, ugly = 0;
    const auto draws = static_cast<std::uint64_t>(testing::random_draws(500));
    for (std::uint64_t seed = 0; seed < draws; ++seed) {
        const RandomLayers random(seed);
        const Graph plain = simplify(random.graph);
        const Padded padded = pad_parameters(plain, {.multiple = 8});
        verify(padded.graph, "pad");
        expect_same_results(plain, padded.graph, fmt::format("seed {}", seed));
        expect_views(plain, padded.graph, fmt::format("seed {}", seed));
        ASSERT_EQ(print(pad_parameters(padded.graph, {.multiple = 8}).graph), print(padded.graph)) << seed;
        padded_parameters += padded.padded.size();
        for (const State& state : plain.states())
            ugly += state.type.shape.rank() == 2 && state.type.shape[0] % 8 != 0;
    }
    EXPECT_GT(padded_parameters, draws / 5);
    EXPECT_GT(ugly, 2 * padded_parameters);
}

TEST(Pad, OneColumnOfPaddingThatCountedWouldBeSeen) {
    const Graph padded =
        build_training_step(traced, show_gradients, options_of("fp32", false, false, true), by_eights())
            .graph;
    Rewriter wrong(padded);
    for (NodeId id = 0; id < static_cast<NodeId>(padded.size()); ++id) {
        const Node& node = padded.node(id);
        if (!node.attributes.has("classes")) {
            wrong.copy(id);
            continue;
        }
        const Attributes one_more = node.attributes.with("classes", ugly_gpt2.vocabulary + 1);
        const NodeId added = wrong.target().add(node.op->name, wrong.map(node.inputs), one_more);
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
            wrong.place({id, i}, {added, i});
    }
    const ReferenceFeed feed = feed_of_layers(padded);
    EXPECT_GT(ReferenceRun(wrong.finish(), feed).result("loss").values[0],
              ReferenceRun(padded, feed).result("loss").values[0] + 1e-6);
}

}  // namespace
}  // namespace mantissa
