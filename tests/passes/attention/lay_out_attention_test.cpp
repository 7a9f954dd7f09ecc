// Attention reads and writes heads where they lie, whatever brought them into order; what it cannot read
// stays, with a reason; every value and gradient keeps its bits.
#include "mantissa/passes/attention/lay_out_attention.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "mantissa/graph/gradient.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/attention/match_attention.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "tests/passes/small_gpt2.h"
#include "tests/support/attention_graphs.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

using namespace testing::attending;

constexpr std::int64_t heads = 4, head_size = 6, channels = heads * head_size;

/// [B, T, channels] -> [B, heads, T, head_size].
Tensor by_heads(Tensor x) { return transpose(reshape(x, {B, -1, heads, head_size}), {0, 2, 1, 3}); }
/// [B, heads, T, head_size] -> [B, T, channels].
Tensor by_positions(Tensor o) { return reshape(transpose(o, {0, 2, 1, 3}), {B, T, channels}); }
Tensor attend_causally(Tensor q, Tensor k, Tensor v) {
    return attention(q, k, v, {.causal = true, .scale = 0.5});
}

struct Found {
    const char* name;
    const char* words;  ///< the attributes
    std::function<Tensor(Given&)> build;
};

const std::vector<Found> readable = {
    {"a transposition of all three, then a split", "operands=qkv:btphd, result=bthd",
     [](Given& g) {
         const auto x =
             split(transpose(reshape(g.input("x", {B, T, 3 * channels}), {B, T, 3, heads, head_size}),
                             {2, 0, 3, 1, 4}),
                   0, 3);
         const Shape s{B, heads, T, head_size};
         return by_positions(attend_causally(reshape(x[0], s), reshape(x[1], s), reshape(x[2], s)));
     }},
    {"a split of the channels, then transpositions", "operands=qkv:btphd, result=bthd",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 3 * channels}), 2, 3);
         return by_positions(attend_causally(by_heads(x[0]), by_heads(x[1]), by_heads(x[2])));
     }},
    {"slices of the rows of a matrix", "operands=vqk:btphd, result=bthd",
     [](Given& g) {
         const Tensor x = reshape(g.input("x", {B * T, 3 * channels}), {B, T, 3 * channels});
         const auto part = [&](std::int64_t i) {
             return by_heads(slice(x, 2, i * channels, (i + 1) * channels));
         };
         return by_positions(attend_causally(part(1), part(2), part(0)));
     }},
    {"three tensors", "operands=q:bthd,k:bthd,v:bthd, result=bthd",
     [](Given& g) {
         const Shape s{B, T, channels};
         return by_positions(attend_causally(by_heads(g.input("q", s)), by_heads(g.input("k", s)),
                                             by_heads(g.input("v", s))));
     }},
    {"the parts of each head side by side", "operands=qkv:bthpd, result=bthd",
     [](Given& g) {
         const auto x =
             split(transpose(reshape(g.input("x", {B, T, 3 * channels}), {B, T, heads, 3 * head_size}),
                             {0, 2, 1, 3}),
                   3, 3);
         return by_positions(attend_causally(x[0], x[1], x[2]));
     }},
    {"positions outermost, in steps", "operands=qkv:tbphd, result=tbhd",
     [](Given& g) {
         const auto x = split(g.input("x", {T, B, 3 * channels}), -1 + 3, 3);
         const auto part = [&](std::size_t i) {
             const Tensor by_head = reshape(transpose(x[i], {1, 0, 2}), {B, T, heads, head_size});
             return transpose(transpose(by_head, {2, 0, 1, 3}), {1, 0, 2, 3});
         };
         return reshape(transpose(attend_causally(part(0), part(1), part(2)), {2, 0, 1, 3}),
                        {T, B, channels});
     }},
    {"queries alone, keys and values together", "operands=q:bthd,kv:btphd",
     [](Given& g) {
         const Tensor kv = g.input("kv", {B, T + 3, 2, channels});
         const auto part = [&](std::int64_t i) {
             return by_heads(reshape(slice(kv, 2, i, i + 1), {B, T + 3, channels}));
         };
         return attend_causally(by_heads(g.input("q", {B, T, channels})), part(0), part(1));
     }},
    {"a split of a split", "operands=q:bhtd,vk:pbthd, result=bthd",
     [](Given& g) {
         const auto x = split(reshape(g.input("x", {2 * B, T, channels}), {2, B, T, channels}), 0, 2);
         const Shape s{B, T, channels};
         const Tensor v = by_heads(reshape(x[0], s)), k = by_heads(reshape(x[1], s));
         return by_positions(attend_causally(g.input("q", {B, heads, T, head_size}), k, v));
     }},
    {"the result alone", "result=bthd",
     [](Given& g) {
         const Tensor x = g.input("x", {B, heads, T, head_size});
         return by_positions(attend_causally(x, x, x));
     }},
};

int copies(const Graph& graph) {
    int count = 0;
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        const std::string_view op = graph.node(id).op->name;
        const bool moves = op == "transpose" || op == "split" || op == "slice" || op == "concat";
        count += moves && !is_view(graph, graph.node(id));
    }
    return count;
}

const Node* find(const Graph& graph, std::string_view op) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
        if (graph.node(id).op->name == op) return &graph.node(id);
    return nullptr;
}

/// With the gradients of all inputs as results.
Graph differentiated(Graph graph, Value y) {
    const Tensor of(graph, y), seed(graph, graph.add_input("dy", graph.type(y)));
    std::vector<Tensor> inputs;
    for (const NodeId id : graph.inputs())
        if (graph.node(id).attributes.word("name") != "dy") inputs.emplace_back(graph, Value{id, 0});
    int index = 0;
    graph.add_result("y", y);
    for (const Tensor& gradient : backpropagate(graph, {&of, 1}, {&seed, 1}, inputs))
        if (gradient) graph.add_result("d" + std::to_string(index++), gradient.value());
    return graph;
}

void expect_same_bits(const Graph& a, const Graph& b, ReferenceFeed feed) {
    for (const NodeId id : a.inputs())
        if (const Node& node = a.node(id); node.attributes.word("name") == "dy")
            feed["dy"] = testing::values_of({node.outputs[0]}, 99);
    const ReferenceRun x(a, feed), y(b, feed);
    for (const Result& result : a.results())
        EXPECT_TRUE(x.result(result.name).values == y.result(result.name).values) << result.name;
}

TEST(LayOutAttention, FindsHeadsWhereverTheyLie) {
    for (const Found& test : readable) {
        SCOPED_TRACE(test.name);
        Given given;
        Value y = test.build(given).value();
        Value after = y;
        const LaidOutAttention laid = lay_out_attention(given.graph, {&after, 1});
        for (const PassRefusal& refusal : laid.refused) ADD_FAILURE() << refusal.text();
        verify(laid.graph, "lay_out_attention");
        const Node* const node = find(laid.graph, "attention");
        ASSERT_TRUE(node);
        EXPECT_EQ(node->attributes.text(), "{causal=true, " + std::string(test.words) + ", scale=0.5}");
        const Graph plain = simplify(differentiated(given.graph, y));
        const Graph better = simplify(differentiated(laid.graph, after));
        verify(better, "differentiate");
        EXPECT_GE(copies(plain), 2);
        EXPECT_EQ(copies(better), 0);
        EXPECT_EQ(copies(laid.graph), 0) << "what is read no more goes";
        expect_same_bits(plain, better, given.feed);
        Value again = after;
        EXPECT_EQ(print(lay_out_attention(laid.graph, {&again, 1}).graph), print(laid.graph))
            << "is not idempotent";
    }
}

/// Operands of the score lie as they did, even where they are views as those that attention reads through.
TEST(LayOutAttention, ReadsOperandsOfTheScoreWhereTheyLie) {
    for (const std::int64_t batch : {1, 2}) {
        Given given;
        const auto moved = [&](const char* name) {
            return transpose(given.input(name, {batch, T, heads, head_size}), {0, 2, 1, 3});
        };
        const Tensor documents = given.input("documents", {batch, T});
        const Tensor other = less(reshape(documents, {batch, 1, T, 1}), reshape(documents, {batch, 1, 1, T}));
        const Tensor scores = matmul(moved("q"), moved("k"), {.transpose_b = true}) * 0.5;
        const Tensor hidden = constant(given.graph, -std::numeric_limits<double>::infinity());
        const Tensor y = transpose(matmul(softmax(select(other, hidden, scores)), moved("v")), {0, 2, 1, 3});
        Value before = y.value();
        const AttentionMatch match = match_attention(given.graph, {&before, 1});
        ASSERT_EQ(match.matched, 1) << batch;
        Value after = before;
        const LaidOutAttention laid = lay_out_attention(match.graph, {&after, 1});
        verify(laid.graph, "lay_out_attention");
        const Node* const node = find(laid.graph, "attention");
        ASSERT_TRUE(node);
        EXPECT_EQ(copies(laid.graph), 0) << batch;
        expect_same_bits(simplify(differentiated(match.graph, before)),
                         simplify(differentiated(laid.graph, after)), given.feed);
    }
}

const std::vector<NearMiss> unreadable = {
    {"the elements of a head apart",
     "keys are not read before 'transpose' to [2, 4, 5, 6]: there the elements of a head do not stand side",
     [](Given& g) {
         const Tensor x = g.input("x", {B, heads, T, head_size});
         return attend_causally(x, transpose(g.input("k", {B, heads, head_size, T}), {0, 1, 3, 2}), x);
     }},
    {"a part that attention does not read",
     "values are not read before 'split' to [2, 5, 24]: of the 3 parts there attention reads 2",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 3 * channels}), 2, 3);
         return attend_causally(by_heads(g.input("q", {B, T, channels})), by_heads(x[1]), by_heads(x[2]));
     }},
    {"a part that is read twice",
     "queries are not read before 'split' to [2, 5, 24]: of the 2 parts there attention reads 2",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 2 * channels}), 2, 2);
         return attend_causally(by_heads(x[0]), by_heads(x[1]), by_heads(x[1]));
     }},
    {"heads in two places",
     "queries are not read before 'transpose' to [2, 2, 2, 5, 6]: there heads are no single axis",
     [](Given& g) {
         const Tensor x = g.input("x", {B, 2, T, heads / 2, head_size}),
                      other = g.input("y", {B, heads, T, head_size});
         return attend_causally(reshape(transpose(x, {0, 1, 3, 2, 4}), {B, heads, T, head_size}), other,
                                other);
     }},
    {"parts of unequal width",
     "keys are not read before 'slice' to [2, 5, 48]: elements 24 to 72 of 72 are no equal part",
     [](Given& g) {
         const Tensor x = g.input("x", {B, T, 3 * channels}), kv = slice(x, 2, channels, 3 * channels);
         return attend_causally(by_heads(g.input("q", {B, T, channels})), by_heads(slice(kv, 2, 0, channels)),
                                by_heads(slice(kv, 2, channels, 2 * channels)));
     }},
    {"a result that others read as it is",
     "the result is not written in another order: it is read in 2 places",
     [](Given& g) {
         const Tensor x = g.input("x", {B, heads, T, head_size}), o = attend_causally(x, x, x);
         return by_positions(o) + reshape(o, {B, T, channels});
     }},
    {"a result whose heads are torn apart", "there the elements of a head do not stand side by side",
     [](Given& g) {
         const Tensor x = g.input("x", {B, heads, T, head_size});
         return transpose(attend_causally(x, x, x), {0, 1, 3, 2});
     }},
};

TEST(LayOutAttention, LeavesNearMissesAsTheyWereAndSaysWhy) {
    for (const NearMiss& miss : unreadable) {
        SCOPED_TRACE(miss.name);
        Given given;
        const OriginScope scope(given.graph, "attn");
        Value y = miss.build(given).value();
        Value after = y;
        const LaidOutAttention laid = lay_out_attention(given.graph, {&after, 1});
        verify(laid.graph, "lay_out_attention");
        std::string reasons;
        for (const PassRefusal& refusal : laid.refused) reasons += refusal.text() + "\n";
        EXPECT_NE(reasons.find(miss.reason), std::string::npos) << reasons;
        EXPECT_TRUE(reasons.starts_with("attn: ")) << reasons;
        expect_same_bits(differentiated(given.graph, y), differentiated(laid.graph, after), given.feed);
    }
}

/// Any chain of movements between a tensor and attention.
TEST(LayOutAttention, KeepsEveryBitOfRandomMovements) {
    int laid_out = 0, refused = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        Given given;
        // [x, y, z, 2, 3, 4] in any order, moved once or twice more, is taken for [B, heads, T, head_size].
        const auto moved = [&](Tensor x) {
            std::vector<std::int64_t> order(static_cast<std::size_t>(x.rank()));
            for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
            for (std::size_t i = order.size() - (random() % 3 == 0 ? 0 : 1); i > 1; --i)
                std::swap(order[i - 1], order[random() % i]);
            return transpose(x, order);
        };
        const auto operand = [&](const std::string& name) {
            const Tensor x = given.input(name, {2, 3, 2, 2, 4});
            return reshape(moved(moved(x)), {2, 6, 2, 4});
        };
        const Tensor q = operand("q");
        const Tensor pair = given.input("pair", {2, 2, 3, 2, 2, 4});
        const Tensor parts = moved(pair);
        const int axis = static_cast<int>(random() % 6);
        const bool cut = parts.dim(axis) == 2;
        const auto of = cut ? split(parts, axis, 2) : std::vector{operand("k"), operand("v")};
        const Tensor k = reshape(of[0], {2, 6, 2, 4}), v = reshape(of[1], {2, 6, 2, 4});
        const Tensor o = reshape(attend_causally(q, k, v), {2, 3, 2, 2, 4});
        Value y = moved(o).value(), after = y;
        const LaidOutAttention laid = lay_out_attention(given.graph, {&after, 1});
        verify(laid.graph, "lay_out_attention");
        const Node* const node = find(laid.graph, "attention");
        ASSERT_TRUE(node);
        laid_out += node->attributes.has("operands") || node->attributes.has("result");
        refused += !laid.refused.empty();
        expect_same_bits(differentiated(given.graph, y), differentiated(laid.graph, after), given.feed);
        Value again = after;
        EXPECT_EQ(print(lay_out_attention(laid.graph, {&again, 1}).graph), print(laid.graph));
        if (HasFailure()) return;
    }
    EXPECT_GE(laid_out, 40);
    EXPECT_GE(refused, 40);
}

TEST(LayOutAttention, KeepsMeaningOfRandomGraphs) {
    for (int seed = 0; seed < 100; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        EXPECT_EQ(print(lay_out_attention(random.graph).graph), print(random.graph)) << seed;
    }
}

TEST(LayOutAttention, LeavesNoMovementInGpt2sStep) {
    const TraceModel trace = testing::traced_gpt2(testing::small_gpt2(2, 8, 11), {2, 7});
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        for (const ParameterGradient& parameter : gradients)
            graph.add_update(parameter.state, parameter.gradient.value());
    };
    for (const char* policy : {"fp32", "bf16"}) {
        const PipelineOptions with{.policy = find_policy(policy), .match_attention = true, .lay_out = true};
        PipelineOptions without = with;
        without.lay_out = false;
        EXPECT_EQ(copies(build_training_step(trace, update, without).graph), 2 * 5) << policy;
        const BuiltGraph built = build_training_step(trace, update, with);
        EXPECT_EQ(copies(built.graph), 0) << policy;
        EXPECT_TRUE(built.refused.empty());
        const Node* const gradient = find(built.graph, "attention_grad");
        ASSERT_TRUE(gradient);
        EXPECT_EQ(gradient->outputs.size(), 1u);
        EXPECT_EQ(gradient->outputs[0].shape, (Shape{2, 7, 3, 2, 4}));
    }
}

}  // namespace
}  // namespace mantissa
