// Attention reads and writes heads where they lie, whatever brought them into order; what it cannot read
// stays, with a reason; every value and gradient keeps its bits.
#include "mantissa/passes/attention/lay_out_attention.h"
#include "mantissa/graph/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "mantissa/graph/gradient.h"
#include "mantissa/graph/printer.h"
#include "mantissa/graph/verifier.h"
#include "mantissa/nn/models/gpt2.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/attention/match_attention.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

constexpr std::int64_t B = 2, T = 5, H = 4, D = 6, C = H * D;

struct Given {
    Graph graph;
    ReferenceFeed feed;

    Tensor input(const std::string& name, Shape shape) {
        const Type type{DType::f32, std::move(shape)};
        feed[name] = testing::values_of({type}, static_cast<std::uint32_t>(feed.size()));
        return {graph, graph.add_input(name, type)};
    }
    /// [B, T, C] -> [B, H, T, D].
    static Tensor heads(Tensor x) { return transpose(reshape(x, {B, -1, H, D}), {0, 2, 1, 3}); }
    /// [B, H, T, D] -> [B, T, C].
    static Tensor channels(Tensor o) { return reshape(transpose(o, {0, 2, 1, 3}), {B, T, C}); }
};

Tensor attend(Tensor q, Tensor k, Tensor v) { return attention(q, k, v, {.causal = true, .scale = 0.5}); }

struct Found {
    const char* name;
    const char* words;  ///< the attributes
    std::function<Tensor(Given&)> build;
};

const std::vector<Found> found = {
    {"a transposition of all three, then a split", "operands=qkv:btphd, result=bthd",
     [](Given& g) {
         const auto x =
             split(transpose(reshape(g.input("x", {B, T, 3 * C}), {B, T, 3, H, D}), {2, 0, 3, 1, 4}), 0, 3);
         const Shape s{B, H, T, D};
         return g.channels(attend(reshape(x[0], s), reshape(x[1], s), reshape(x[2], s)));
     }},
    {"a split of the channels, then transpositions", "operands=qkv:btphd, result=bthd",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 3 * C}), 2, 3);
         return g.channels(attend(g.heads(x[0]), g.heads(x[1]), g.heads(x[2])));
     }},
    {"slices of the rows of a matrix", "operands=vqk:btphd, result=bthd",
     [](Given& g) {
         const Tensor x = reshape(g.input("x", {B * T, 3 * C}), {B, T, 3 * C});
         const auto part = [&](std::int64_t i) { return g.heads(slice(x, 2, i * C, (i + 1) * C)); };
         return g.channels(attend(part(1), part(2), part(0)));
     }},
    {"three tensors", "operands=q:bthd,k:bthd,v:bthd, result=bthd",
     [](Given& g) {
         const Shape s{B, T, C};
         return g.channels(
             attend(g.heads(g.input("q", s)), g.heads(g.input("k", s)), g.heads(g.input("v", s))));
     }},
    {"the parts of each head side by side", "operands=qkv:bthpd, result=bthd",
     [](Given& g) {
         const auto x =
             split(transpose(reshape(g.input("x", {B, T, 3 * C}), {B, T, H, 3 * D}), {0, 2, 1, 3}), 3, 3);
         return g.channels(attend(x[0], x[1], x[2]));
     }},
    {"positions outermost, in steps", "operands=qkv:tbphd, result=tbhd",
     [](Given& g) {
         const auto x = split(g.input("x", {T, B, 3 * C}), -1 + 3, 3);
         const auto part = [&](std::size_t i) {
             const Tensor by_head = reshape(transpose(x[i], {1, 0, 2}), {B, T, H, D});
             return transpose(transpose(by_head, {2, 0, 1, 3}), {1, 0, 2, 3});
         };
         return reshape(transpose(attend(part(0), part(1), part(2)), {2, 0, 1, 3}), {T, B, C});
     }},
    {"queries alone, keys and values together", "operands=q:bthd,kv:btphd",
     [](Given& g) {
         const Tensor kv = g.input("kv", {B, T + 3, 2, C});
         const auto part = [&](std::int64_t i) {
             return g.heads(reshape(slice(kv, 2, i, i + 1), {B, T + 3, C}));
         };
         return attend(g.heads(g.input("q", {B, T, C})), part(0), part(1));
     }},
    {"a split of a split", "operands=q:bhtd,vk:pbthd, result=bthd",
     [](Given& g) {
         const auto x = split(reshape(g.input("x", {2 * B, T, C}), {2, B, T, C}), 0, 2);
         const Shape s{B, T, C};
         const Tensor v = g.heads(reshape(x[0], s)), k = g.heads(reshape(x[1], s));
         return g.channels(attend(g.input("q", {B, H, T, D}), k, v));
     }},
    {"the result alone", "result=bthd",
     [](Given& g) {
         const Tensor x = g.input("x", {B, H, T, D});
         return g.channels(attend(x, x, x));
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

void expect_same_results(const Graph& a, const Graph& b, ReferenceFeed feed) {
    for (const NodeId id : a.inputs())
        if (const Node& node = a.node(id); node.attributes.word("name") == "dy")
            feed["dy"] = testing::values_of({node.outputs[0]}, 99);
    const ReferenceRun x(a, feed), y(b, feed);
    for (const Result& result : a.results())
        EXPECT_TRUE(x.result(result.name).values == y.result(result.name).values) << result.name;
}

TEST(LayOutAttention, FindsHeadsWhereverTheyLie) {
    for (const Found& test : found) {
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
        expect_same_results(plain, better, given.feed);
        Value again = after;
        EXPECT_EQ(print(lay_out_attention(laid.graph, {&again, 1}).graph), print(laid.graph))
            << "is not idempotent";
    }
}

/// Operands of the score lie as they did, even where they are views as those that attention reads through.
TEST(LayOutAttention, ReadsOperandsOfTheScoreWhereTheyLie) {
    for (const std::int64_t batch : {1, 2}) {
        Given given;
        const auto heads = [&](const char* name) {
            return transpose(given.input(name, {batch, T, H, D}), {0, 2, 1, 3});
        };
        const Tensor documents = given.input("documents", {batch, T});
        const Tensor other = less(reshape(documents, {batch, 1, T, 1}), reshape(documents, {batch, 1, 1, T}));
        const Tensor scores = matmul(heads("q"), heads("k"), {.transpose_b = true}) * 0.5;
        const Tensor hidden = constant(given.graph, -std::numeric_limits<double>::infinity());
        const Tensor y = transpose(matmul(softmax(select(other, hidden, scores)), heads("v")), {0, 2, 1, 3});
        Value before = y.value();
        const AttentionMatch match = match_attention(given.graph, {&before, 1});
        ASSERT_EQ(match.matched, 1) << batch;
        Value after = before;
        const LaidOutAttention laid = lay_out_attention(match.graph, {&after, 1});
        verify(laid.graph, "lay_out_attention");
        const Node* const node = find(laid.graph, "attention");
        ASSERT_TRUE(node);
        EXPECT_EQ(copies(laid.graph), 0) << batch;
        expect_same_results(simplify(differentiated(match.graph, before)),
                            simplify(differentiated(laid.graph, after)), given.feed);
    }
}

struct NearMiss {
    const char* name;
    const char* reason;
    std::function<Tensor(Given&)> build;
};

const std::vector<NearMiss> near_misses = {
    {"the elements of a head apart",
     "keys are not read before 'transpose' to [2, 4, 5, 6]: there the elements of a head do not stand side",
     [](Given& g) {
         const Tensor x = g.input("x", {B, H, T, D});
         return attend(x, transpose(g.input("k", {B, H, D, T}), {0, 1, 3, 2}), x);
     }},
    {"a part that attention does not read",
     "values are not read before 'split' to [2, 5, 24]: of the 3 parts there attention reads 2",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 3 * C}), 2, 3);
         return attend(g.heads(g.input("q", {B, T, C})), g.heads(x[1]), g.heads(x[2]));
     }},
    {"a part that is read twice",
     "queries are not read before 'split' to [2, 5, 24]: of the 2 parts there attention reads 2",
     [](Given& g) {
         const auto x = split(g.input("x", {B, T, 2 * C}), 2, 2);
         return attend(g.heads(x[0]), g.heads(x[1]), g.heads(x[1]));
     }},
    {"heads in two places",
     "queries are not read before 'transpose' to [2, 2, 2, 5, 6]: there heads are no single axis",
     [](Given& g) {
         const Tensor x = g.input("x", {B, 2, T, H / 2, D}), other = g.input("y", {B, H, T, D});
         return attend(reshape(transpose(x, {0, 1, 3, 2, 4}), {B, H, T, D}), other, other);
     }},
    {"parts of unequal width",
     "keys are not read before 'slice' to [2, 5, 48]: elements 24 to 72 of 72 are no equal part",
     [](Given& g) {
         const Tensor x = g.input("x", {B, T, 3 * C}), kv = slice(x, 2, C, 3 * C);
         return attend(g.heads(g.input("q", {B, T, C})), g.heads(slice(kv, 2, 0, C)),
                       g.heads(slice(kv, 2, C, 2 * C)));
     }},
    {"a result that others read as it is",
     "the result is not written in another order: it is read in 2 places",
     [](Given& g) {
         const Tensor x = g.input("x", {B, H, T, D}), o = attend(x, x, x);
         return g.channels(o) + reshape(o, {B, T, C});
     }},
    {"a result whose heads are torn apart", "there the elements of a head do not stand side by side",
     [](Given& g) {
         const Tensor x = g.input("x", {B, H, T, D});
         return transpose(attend(x, x, x), {0, 1, 3, 2});
     }},
};

TEST(LayOutAttention, LeavesNearMissesAsTheyWereAndSaysWhy) {
    for (const NearMiss& miss : near_misses) {
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
        expect_same_results(differentiated(given.graph, y), differentiated(laid.graph, after), given.feed);
    }
}

/// Any chain of movements between a tensor and attention.
TEST(LayOutAttention, KeepsEveryBitOfRandomMovements) {
    int laid_out = 0, refused = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        Given given;
        // [x, y, z, 2, 3, 4] in any order, moved once or twice more, is taken for [B, H, T, D].
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
        const Tensor o = reshape(attend(q, k, v), {2, 3, 2, 2, 4});
        Value y = moved(o).value(), after = y;
        const LaidOutAttention laid = lay_out_attention(given.graph, {&after, 1});
        verify(laid.graph, "lay_out_attention");
        const Node* const node = find(laid.graph, "attention");
        ASSERT_TRUE(node);
        laid_out += node->attributes.has("operands") || node->attributes.has("result");
        refused += !laid.refused.empty();
        expect_same_results(differentiated(given.graph, y), differentiated(laid.graph, after), given.feed);
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
    const nn::Gpt2Config model{.name = "small",
                               .layers = 2,
                               .heads = 2,
                               .channels = 8,
                               .vocabulary = 11,
                               .context = 9,
                               .dropout = 0};
    const auto trace = [&](Graph& graph) {
        const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {2, 7}}));
        const Tensor targets(graph, graph.add_input("targets", {DType::i32, {2, 7}}));
        return nn::gpt2_loss(model, tokens, targets, {});
    };
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
