// Attention is found whatever it was spelled with, and what almost is attention stays as it was, with a
// reason.
#include "mantissa/passes/attention/match_attention.h"
#include "mantissa/graph/graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "mantissa/graph/printer.h"
#include "mantissa/graph/verifier.h"
#include "mantissa/nn/models/gpt2.h"
#include "mantissa/passes/pipeline.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/attention_graphs.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_draws.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

using namespace testing::attending;

struct Spelling {
    const char* name;
    bool causal;
    std::function<Tensor(Given&)> build;
};

const std::vector<Spelling> scales = {
    {"scale after, multiplied", false,
     [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k()) * (1 / root)), g.v()); }},
    {"scale after, divided", false,
     [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k()) / root), g.v()); }},
    {"scale before, on q", false,
     [](Given& g) { return matmul(softmax(g.scores(g.q() * (1 / root), g.k())), g.v()); }},
    {"scale before, on k, divided", false,
     [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k() / root)), g.v()); }},
    {"half of it on each", false,
     [](Given& g) {
         const double half = 1 / std::sqrt(root);
         return matmul(softmax(g.scores(g.q() * half, g.k() * half)), g.v());
     }},
    {"scale as a computed constant", false,
     [](Given& g) {
         return matmul(softmax(g.scores(g.q(), g.k()) * rsqrt(cast(g.number(4, DType::i32), DType::f32))),
                       g.v());
     }},
    {"scale as a constant of full shape, from the left", false,
     [](Given& g) {
         return matmul(softmax(constant(g.graph, 0.5, DType::f32, {B, H, T, T}) * g.scores(g.q(), g.k())),
                       g.v());
     }},
    {"no scale", false, [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k())), g.v()); }},
    {"two negations and a constant added to all scores", false,
     [](Given& g) { return matmul(softmax(-(-g.scores(g.q(), g.k()) / root) + 3.0), g.v()); }},
    {"scale on q before its transposition", false,
     [](Given& g) {
         const Tensor q = transpose(g.input("q", {B, T, H, D}) / root, {0, 2, 1, 3});
         return matmul(softmax(g.scores(q, g.k())), g.v());
     }},
};

const std::vector<Spelling> masks = {
    {"where, after the scale", true,
     [](Given& g) { return matmul(softmax(g.masked(g.scores(g.q(), g.k()) / root)), g.v()); }},
    {"where, before the scale", true,
     [](Given& g) { return matmul(softmax(g.masked(g.scores(g.q(), g.k())) / root), g.v()); }},
    {"fill with a large negative number", true,
     [](Given& g) {
         const Tensor later = less(g.queries(), g.keys());
         return matmul(softmax(select(later, g.number(-1e9), g.scores(g.q(), g.k()) / root)), g.v());
     }},
    {"additive bias of -infinity", true,
     [](Given& g) {
         const Tensor bias = select(g.visible(), g.number(0), g.number(-infinity));
         return matmul(softmax(g.scores(g.q(), g.k()) / root + bias), g.v());
     }},
    {"additive bias from the left, of rank 4, times a number", true,
     [](Given& g) {
         const Tensor hidden = cast(less(g.queries(), g.keys()), DType::f32);
         const Tensor bias = reshape(hidden * -1e5, {1, 1, T, T});
         return matmul(softmax(bias + g.scores(g.q(), g.k()) / root), g.v());
     }},
    {"slice of a triangular buffer", true,
     [](Given& g) {
         const Tensor buffer = slice(slice(reshape(g.triangle(16), {1, 1, 16, 16}), 2, 0, T), 3, 0, T);
         const Tensor is_zero = equal(buffer, g.number(0));
         return matmul(softmax(select(is_zero, g.number(-infinity), g.scores(g.q(), g.k()) / root)), g.v());
     }},
    {"slice from the middle of a buffer", true,
     [](Given& g) {
         const Tensor buffer = slice(slice(g.triangle(16), 0, 7, 7 + T), 1, 7, 7 + T);
         return matmul(softmax(select(cast(buffer, DType::boolean), g.scores(g.q(), g.k()) / root,
                                      g.number(-infinity))),
                       g.v());
     }},
    {"times the triangle, minus 1e10 where it is 0", true,
     [](Given& g) {
         const Tensor b = g.triangle(T);
         return matmul(softmax(g.scores(g.q(), g.k()) / root * b - (-b + 1.0) * 1e10), g.v());
     }},
    {"comparison of a row and a column of positions", true,
     [](Given& g) {
         const Tensor position = iota(g.graph, {T}, 0);
         const Tensor sees = less_equal(reshape(position, {1, T}), reshape(position, {T, 1}));
         return matmul(softmax(select(sees, g.scores(g.q(), g.k()) / root, g.number(-1e9))), g.v());
     }},
    {"comparison of a difference, in floating point", true,
     [](Given& g) {
         const Tensor distance = cast(g.queries(), DType::f32) - cast(g.keys(), DType::f32);
         const Tensor sees = less(g.number(-0.5), distance);
         return matmul(softmax(select(sees, g.scores(g.q(), g.k()) / root, g.number(-1e9))), g.v());
     }},
    {"both a mask and the same mask as a bias", true,
     [](Given& g) {
         const Tensor bias = select(g.visible(), g.number(0), g.number(-1e9));
         return matmul(softmax(g.masked(g.scores(g.q(), g.k()) / root + bias)), g.v());
     }},
    {"a mask that hides nothing", false,
     [](Given& g) {
         const Tensor sees = less_equal(g.keys(), g.queries() + static_cast<double>(T));
         return matmul(softmax(select(sees, g.scores(g.q(), g.k()) / root, g.number(-infinity))), g.v());
     }},
    {"more keys than queries", true,
     [](Given& g) {
         const Tensor k = g.input("k", {B, H, T + 3, D}), v = g.input("v", {B, H, T + 3, D});
         const Tensor sees = less_equal(g.keys({T, T + 3}), g.queries({T, T + 3}) + 3.0);
         return matmul(softmax(select(sees, g.scores(g.q(), k) / root, g.number(-infinity))), v);
     }},
};

/// [B, T, C] -> [B, H, T, D].
Tensor heads(Tensor x) { return transpose(reshape(x, {B, T, H, D}), {0, 2, 1, 3}); }
Tensor merged(Tensor o) { return reshape(transpose(o, {0, 2, 1, 3}), {B, T, C}); }

const std::vector<Spelling> layouts = {
    {"split of one projection", true,
     [](Given& g) {
         const auto parts = split(g.input("qkv", {B, T, 3 * C}), -1, 3);
         const Tensor s = g.scores(heads(parts[0]), heads(parts[1])) / root;
         return merged(matmul(softmax(g.masked(s)), heads(parts[2])));
     }},
    {"chunks by slices", true,
     [](Given& g) {
         const Tensor qkv = g.input("qkv", {B, T, 3 * C});
         const auto part = [&](std::int64_t i) { return heads(slice(qkv, 2, i * C, (i + 1) * C)); };
         return merged(matmul(softmax(g.masked(g.scores(part(0), part(1)) / root)), part(2)));
     }},
    {"three projections", true,
     [](Given& g) {
         const Tensor x = g.input("x", {B * T, C});
         const auto project = [&](const char* w) {
             return heads(reshape(matmul(x, g.input(w, {C, C}), {.transpose_b = true}), {B, T, C}));
         };
         const Tensor s = g.scores(project("wq"), project("wk")) / root;
         return merged(matmul(softmax(g.masked(s)), project("wv")));
     }},
    {"keys transposed by hand", true,
     [](Given& g) {
         const Tensor s = matmul(g.q(), transpose(g.k(), {0, 1, 3, 2})) / root;
         return matmul(softmax(g.masked(s)), g.v());
     }},
    {"scores made transposed", true,
     [](Given& g) {
         const Tensor s = transpose(matmul(g.k(), g.q(), {.transpose_b = true}), {0, 1, 3, 2}) / root;
         return matmul(softmax(g.masked(s)), g.v());
     }},
    {"heads in the batch", true,
     [](Given& g) {
         const auto flat = [](Tensor x) { return reshape(x, {B * H, T, D}); };
         const Tensor s = g.scores(flat(g.q()), flat(g.k())) / root;
         return matmul(softmax(g.masked(s)), flat(g.v()));
     }},
    {"heads in the batch for the products only", true,
     [](Given& g) {
         const auto flat = [](Tensor x) { return reshape(x, {B * H, T, D}); };
         const Tensor s = reshape(g.scores(flat(g.q()), flat(g.k())), {B, H, T, T}) / root;
         const Tensor w = reshape(softmax(g.masked(s)), {B * H, T, T});
         return reshape(matmul(w, flat(g.v())), {B, H, T, D});
     }},
    {"softmax with queries before heads", false,
     [](Given& g) {
         const Tensor s = transpose(g.scores(g.q(), g.k()) / root, {0, 2, 1, 3});  // [B, T, H, S]
         return matmul(transpose(softmax(s), {0, 2, 1, 3}), g.v());
     }},
    {"heads before the batch", true,
     [](Given& g) {
         const auto turned = [](Tensor x) { return transpose(x, {1, 0, 2, 3}); };
         const Tensor s = g.scores(turned(g.q()), turned(g.k())) / root;
         return matmul(transpose(softmax(g.masked(s)), {1, 0, 2, 3}), g.v());
     }},
    {"the result transposed: v^T w^T", true,
     [](Given& g) {
         const Tensor w = softmax(g.masked(g.scores(g.q(), g.k()) / root));
         return matmul(g.v(), w, {.transpose_a = true, .transpose_b = true});  // [B, H, D, T]
     }},
    {"one head, no batch", true,
     [](Given& g) {
         const Tensor q = g.input("q", {T, D}), k = g.input("k", {T, D}), v = g.input("v", {T, D});
         return matmul(softmax(g.masked(g.scores(q, k) / root)), v);
     }},
    {"one query", false,
     [](Given& g) {
         return matmul(softmax(g.scores(g.input("q", {B, H, 1, D}), g.k()) / root), g.v());
     }},
};

const std::vector<Spelling> details = {
    {"dropout of rate 0", true,
     [](Given& g) {
         const Tensor seed = constant(g.graph, 1, DType::i64), step = constant(g.graph, 2, DType::i64);
         const Tensor w = softmax(g.masked(g.scores(g.q(), g.k()) / root));
         return matmul(dropout(w, {seed, step}, 0, 1), g.v());
     }},
    {"casts between", true,
     [](Given& g) {
         const auto narrow = [](Tensor x) { return cast(x, DType::bf16); };
         const Tensor s = cast(g.scores(narrow(g.q()), narrow(g.k())), DType::f32) / root;
         return cast(matmul(narrow(softmax(g.masked(s))), narrow(g.v())), DType::f32);
     }},
    {"softmax written out", true,
     [](Given& g) {
         const Tensor s = g.masked(g.scores(g.q(), g.k()) / root);
         const Tensor e = exp(s - stop_gradient(max(s, {-1}, KeepAxes::yes)));
         return matmul(e / sum(e, {-1}, KeepAxes::yes), g.v());
     }},
    {"softmax written out over rows, the reductions reshaped", true,
     [](Given& g) {
         const Tensor s = matmul(g.k(), g.q(), {.transpose_b = true}) / root;  // [B, H, S, T]
         const Tensor m = select(less_equal(g.queries(), g.keys()), s, g.number(-infinity));
         const Tensor e = exp(m - reshape(max(m, {2}), {B, H, 1, T}));
         return matmul(e / reshape(sum(e, {2}), {B, H, 1, T}), g.v(), {.transpose_a = true});
     }},
    {"softmax written out without a maximum", false,
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()) / root);
         return matmul(e / broadcast_to(sum(e, {3}, KeepAxes::yes), {B, H, T, T}), g.v());
     }},
};

/// Six heads of queries over two of keys.
constexpr std::int64_t Q = 6, G = 2, R = Q / G;

/// Each head of x [B, G, T, D] R times in a row.
Tensor repeated(Tensor x) {
    return reshape(broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, R, T, D}), {B, Q, T, D});
}

const std::vector<Spelling> groups = {
    {"keys and values repeated", true,
     [](Given& g) {
         const Tensor q = g.input("q", {B, Q, T, D});
         const Tensor k = repeated(g.input("k", {B, G, T, D})), v = repeated(g.input("v", {B, G, T, D}));
         return matmul(softmax(g.masked(g.scores(q, k) / root)), v);
     }},
    {"repeated with a view on the way", true,
     [](Given& g) {
         const Tensor q = g.input("q", {B, Q, T, D});
         const Tensor k = repeated(transpose(g.input("k", {B, T, G, D}), {0, 2, 1, 3}));
         const Tensor v = transpose(repeated(g.input("v", {B, G, T, D})), {0, 1, 3, 2});
         const Tensor s = matmul(q, transpose(k, {0, 1, 3, 2})) / root;
         return matmul(softmax(g.masked(s)), v, {.transpose_b = true});
     }},
    {"heads in groups", true,
     [](Given& g) {
         const Tensor q = g.input("q", {B, G, R, T, D});
         const auto spread = [](Tensor x) {
             return broadcast_to(reshape(x, {B, G, 1, T, D}), {B, G, R, T, D});
         };
         const Tensor s = g.scores(q, spread(g.input("k", {B, G, T, D}))) / root;
         return matmul(softmax(g.masked(s)), spread(g.input("v", {B, G, T, D})));
     }},
    {"one head of keys", false,
     [](Given& g) {
         const Tensor q = g.input("q", {B, Q, T, D});
         const auto spread = [](Tensor x) { return broadcast_to(x, {B, Q, T, D}); };
         const Tensor s = g.scores(q, spread(g.input("k", {B, 1, T, D}))) / root;
         return matmul(softmax(s), spread(g.input("v", {B, 1, T, D})));
     }},
    {"one head of keys, without an axis for it", false,
     [](Given& g) {
         const Tensor q = g.input("q", {1, Q, T, D});
         const auto spread = [](Tensor x) { return broadcast_to(x, {1, Q, T, D}); };
         const Tensor s = g.scores(q, spread(g.input("k", {T, D}))) / root;
         return matmul(softmax(s), spread(g.input("v", {T, D})));
     }},
    {"queries of a group as rows of one product", true,
     [](Given& g) {
         const Tensor q = g.input("q", {B, Q, T, D});
         const Tensor k = g.input("k", {B, G, T, D}), v = g.input("v", {B, G, T, D});
         const Tensor s = reshape(g.scores(reshape(q, {B, G, R * T, D}), k), {B, Q, T, T}) / root;
         const Tensor w = reshape(softmax(g.masked(s)), {B, G, R * T, T});
         return reshape(matmul(w, v), {B, Q, T, D});
     }},
};

int count(const Graph& graph, std::string_view op) {
    int nodes = 0;
    for (std::size_t id = 0; id < graph.size(); ++id)
        nodes += graph.node(static_cast<NodeId>(id)).op->name == op;
    return nodes;
}

/// The largest difference of the results, by the reference.
double difference(const Graph& a, const Graph& b, const ReferenceFeed& feed) {
    const ReferenceTensor x = ReferenceRun(a, feed).result("y");
    const ReferenceTensor y = ReferenceRun(b, feed).result("y");
    EXPECT_EQ(x.type, y.type);
    double worst = 0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
        const double apart = std::abs(x.values[i] - y.values[i]);
        worst = !(apart <= worst) ? apart : worst;
    }
    return worst;
}

TEST(MatchAttention, FindsEverySpelling) {
    int spellings = 0;
    for (const auto& family : {scales, masks, layouts, details})
        for (const Spelling& spelling : family) {
            SCOPED_TRACE(spelling.name);
            ++spellings;
            Given given;
            given.graph.add_result("y", spelling.build(given).value());
            const AttentionMatch match = match_attention(given.graph);
            for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
            ASSERT_EQ(match.matched, 1);
            verify(match.graph, "match_attention");
            EXPECT_EQ(count(match.graph, "softmax") + count(match.graph, "exp"), 0);
            EXPECT_EQ(count(match.graph, "select") + count(match.graph, "iota"), 0);
            for (std::size_t id = 0; id < match.graph.size(); ++id) {
                const Node& node = match.graph.node(static_cast<NodeId>(id));
                if (node.op->name != "attention") continue;
                EXPECT_EQ(node.attributes.flag("causal"), spelling.causal);
                EXPECT_NEAR(node.attributes.number("scale"),
                            spelling.name == std::string("no scale") ? 1 : 0.5, 1e-15);
            }
            // Casts to bf16 on the way round to 2^-9; attention rounds its operands and its result only.
            const bool rounded = spelling.name == std::string("casts between");
            EXPECT_LE(difference(given.graph, match.graph, given.feed), rounded ? 4 * 0x1p-8 : 1e-13);
            EXPECT_EQ(print(match_attention(match.graph).graph), print(match.graph)) << "is not idempotent";
        }
    EXPECT_GE(spellings, 24);
}

TEST(MatchAttention, HeadsThatShareKeysReadThemFromBeforeTheyWereRepeated) {
    for (const Spelling& spelling : groups) {
        SCOPED_TRACE(spelling.name);
        Given given;
        given.graph.add_result("y", spelling.build(given).value());
        const AttentionMatch match = match_attention(given.graph);
        for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
        ASSERT_EQ(match.matched, 1);
        verify(match.graph, "match_attention");
        EXPECT_EQ(count(match.graph, "broadcast") + count(match.graph, "softmax"), 0);
        for (std::size_t id = 0; id < match.graph.size(); ++id) {
            const Node& node = match.graph.node(static_cast<NodeId>(id));
            if (node.op->name != "attention") continue;
            EXPECT_EQ(match.graph.type(node.inputs[0]).shape[1], Q);
            EXPECT_LE(match.graph.type(node.inputs[1]).shape[1], G);
            EXPECT_EQ(node.attributes.flag("causal"), spelling.causal);
        }
        EXPECT_LE(difference(given.graph, match.graph, given.feed), 1e-13);
        EXPECT_EQ(print(match_attention(match.graph).graph), print(match.graph)) << "is not idempotent";
    }
}

TEST(MatchAttention, RepetitionsThatAreNotOfHeadsInARowAreReadAsTheyAre) {
    // Head h reads keys h modulo G.
    const auto interleaved = [](Tensor x) {
        return reshape(broadcast_to(reshape(x, {B, 1, G, T, D}), {B, R, G, T, D}), {B, Q, T, D});
    };
    for (const bool both : {true, false}) {
        Given given;
        const Tensor q = given.input("q", {B, Q, T, D});
        const Tensor k = given.input("k", {B, G, T, D}), v = given.input("v", {B, both ? G : Q, T, D});
        const Tensor s = given.scores(q, interleaved(k)) / root;
        given.graph.add_result("y", matmul(softmax(given.masked(s)), both ? interleaved(v) : v).value());
        const AttentionMatch match = match_attention(given.graph);
        EXPECT_EQ(match.matched, 1);
        EXPECT_EQ(count(match.graph, "broadcast"), both ? 2 : 1);
        ASSERT_EQ(match.refused.size(), 1u);
        EXPECT_EQ(match.refused[0].reason,
                  both ? "keys and values are repeated along other axes than the innermost of the heads"
                       : "keys and values are not repeated alike");
        EXPECT_LE(difference(given.graph, match.graph, given.feed), 1e-13);
    }
}

struct NearMiss {
    const char* name;
    const char* reason;  ///< or the formula that it becomes
    std::function<Tensor(Given&)> build;
};

Tensor with_mask(Given& g, Tensor sees) {
    return matmul(softmax(select(sees, g.scores(g.q(), g.k()) / root, g.number(-infinity))), g.v());
}

/// Each is attention under a score or a mask of its own: what it becomes.
const std::vector<NearMiss> other_scores = {
    {"the diagonal is hidden", "s where j < i",
     [](Given& g) { return with_mask(g, less(g.keys(), g.queries())); }},
    {"one later key is shown", "s where j <= i + 1",
     [](Given& g) { return with_mask(g, less_equal(g.keys(), g.queries() + 1.0)); }},
    {"a causal mask that starts at the first key", "s where j <= i",
     [](Given& g) {
         const Tensor k = g.input("k", {B, H, T + 3, D}), v = g.input("v", {B, H, T + 3, D});
         const Tensor sees = less_equal(g.keys({T, T + 3}), g.queries({T, T + 3}));
         return matmul(softmax(select(sees, g.scores(g.q(), k), g.number(-infinity))), v);
     }},
    {"keys before the query are hidden", "s where i <= j",
     [](Given& g) { return with_mask(g, less_equal(g.queries(), g.keys())); }},
    {"every second key", "s where 2 * j <= i",
     [](Given& g) { return with_mask(g, less_equal(g.keys() * 2.0, g.queries())); }},
    {"the diagonal alone", "s where j == i",
     [](Given& g) { return with_mask(g, equal(g.keys(), g.queries())); }},
    {"a window", "s where j <= i and i < j + 3",
     [](Given& g) { return with_mask(g, logical_and(g.visible(), less(g.queries(), g.keys() + 3.0))); }},
    {"padding", "s where j < 3",
     [](Given& g) { return with_mask(g, less(g.keys(), constant(g.graph, 3, DType::i32))); }},
    {"a mask from data", "s where x1[i, j]",
     [](Given& g) {
         return with_mask(g, g.input("mask", {T, T}, DType::boolean));
     }},
    {"a mask that differs between heads", "s where j <= i + h",
     [](Given& g) {
         const Shape all{H, T, T};
         return with_mask(g,
                          less_equal(iota(g.graph, all, 2), iota(g.graph, all, 1) + iota(g.graph, all, 0)));
     }},
    {"masked scores still weigh", "s + (j <= i ? 0 : -10)",
     [](Given& g) {
         const Tensor bias = select(g.visible(), g.number(0), g.number(-10));
         return matmul(softmax(g.scores(g.q(), g.k()) + bias), g.v());
     }},
    {"masked scores become 0", "j <= i ? s : 0",
     [](Given& g) { return matmul(softmax(g.scores(g.q(), g.k()) * g.triangle(T)), g.v()); }},
    {"a bias that grows with the distance", "s + j / 4 where j <= i",
     [](Given& g) {
         const Tensor distance = cast(g.keys() - g.queries(), DType::f32);
         return matmul(softmax(g.masked(g.scores(g.q(), g.k()) + distance * 0.25)), g.v());
     }},
};

const std::vector<NearMiss> near_products = {
    {"softmax over the queries", "does not run over the positions that the product with the values sums",
     [](Given& g) {
         const Tensor w = softmax(transpose(g.scores(g.q(), g.k()), {0, 1, 3, 2}));
         return matmul(transpose(w, {0, 1, 3, 2}), g.v());
     }},
    {"softmax written out over the heads", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e, {1}, KeepAxes::yes), g.v());
     }},
    {"weights used elsewhere too", "the weights are used elsewhere too, by 'matmul', 'sum'",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k()));
         const Tensor y = matmul(w, g.v());
         return y + sum(w, {0, 1, 2, 3});
     }},
    {"scores used elsewhere too", "the output of 'matmul' is used elsewhere too, by 'result'",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         g.graph.add_result("scores", s.value());
         return matmul(softmax(s * 0.5), g.v());
     }},
    {"scores without a gradient", "'stop_gradient' stands between",
     [](Given& g) { return matmul(softmax(stop_gradient(g.scores(g.q(), g.k()))), g.v()); }},
    {"a softmax of data", "'input' stands between",
     [](Given& g) {
         return matmul(softmax(g.input("s", {B, H, T, T})), g.v());
     }},
    {"a softmax that is a result", "the weights are a result of the graph",
     [](Given& g) { return softmax(g.scores(g.q(), g.k())); }},
    {"weights that are squared", "divided by more than their sum over the keys",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k()));
         return matmul(w * w, g.v());
     }},
    {"weights changed before the product", "the weights go into 'exp', not into a product with values",
     [](Given& g) { return matmul(exp(softmax(g.scores(g.q(), g.k()))), g.v()); }},
    {"values of another head size", "queries and keys have 4 elements, values 7",
     [](Given& g) {
         return matmul(softmax(g.scores(g.q(), g.k())), g.input("v", {B, H, T, 7}));
     }},
    {"scores of other positions", "the scores' rows and columns are not the queries and keys",
     [](Given& g) {
         const Tensor s =
             reshape(g.scores(g.input("q", {B, T, H, D}), g.input("k", {B, T, H, D})), {B, T, H, H});
         return matmul(softmax(transpose(s, {0, 2, 1, 3})), g.input("v", {B, H, H, D}));
     }},
    {"exponentials that are not normalised", "not divided by their sum over the keys",
     [](Given& g) { return matmul(exp(g.scores(g.q(), g.k())), g.v()) / 2.0; }},
    {"the sum of other exponentials", "divided by the sum of other exponentials",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(exp(s) / sum(exp(s * 1.01), {-1}, KeepAxes::yes), g.v());
     }},
    {"a sum over masked pairs of what is not masked", "divided by a sum over other pairs",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e * g.triangle(T), {-1}, KeepAxes::yes), g.v());
     }},
    {"a sum without a gradient", "not divided by their sum over the keys",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / stop_gradient(sum(e, {-1}, KeepAxes::yes)), g.v());
     }},
    {"a gate for each key before weights are normalised again", "not 0 or 1 before they are normalised",
     [](Given& g) {
         const Tensor w = softmax(g.scores(g.q(), g.k())) * g.input("gate", {T});
         return matmul(w / sum(w, {-1}, KeepAxes::yes), g.v());
     }},
    {"another maximum", "multiplied by an exponential that does not cancel",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor e = exp(s - max(s, {-1}, KeepAxes::yes));
         return matmul(e / sum(exp(s), {-1}, KeepAxes::yes), g.v());
     }},
    {"two products", "the scores are made of 2 products of queries and keys",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k()) + g.scores(g.head_major("p"), g.head_major("r"));
         return matmul(softmax(s), g.v());
     }},
    {"weights times the scores", "multiplied by something of the scores",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(softmax(s) * s, g.v());
     }},
    {"weights times the maximum", "something of the scores that does not cancel",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         return matmul(softmax(s) * max(s, {-1}, KeepAxes::yes), g.v());
     }},
    {"a maximum that is read elsewhere", "the output of 'max' is used elsewhere too, by 'result'",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor m = max(s, {-1}, KeepAxes::yes);
         g.graph.add_result("m", m.value());
         const Tensor e = exp(s - m);
         return matmul(e / sum(e, {-1}, KeepAxes::yes), g.v());
     }},
    {"a softmax of a softmax", "depend on all scores of their query",
     [](Given& g) { return matmul(softmax(softmax(g.scores(g.q(), g.k()))), g.v()); }},
    {"scores that are normalised", "'layer_norm' stands between",
     [](Given& g) {
         const Tensor s = layer_norm(g.scores(g.q(), g.k()), g.input("gamma", {T}), g.input("beta", {T}));
         return matmul(softmax(s), g.v());
     }},
    {"a sink that depends on the scores", "the logit that is no key's depends on the scores",
     [](Given& g) {
         const Tensor s = g.scores(g.q(), g.k());
         const Tensor e = exp(s);
         const Tensor sink = exp(max(s, {-1}, KeepAxes::yes));
         return matmul(e / (sum(e, {-1}, KeepAxes::yes) + sink), g.v());
     }},
    {"a sum over the queries", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / sum(e, {-2}, KeepAxes::yes), g.v());
     }},
    {"divided by a sum of another query", "does not run over the positions",
     [](Given& g) {
         const Tensor e = exp(g.scores(g.q(), g.k()));
         return matmul(e / transpose(sum(e, {-1}, KeepAxes::yes), {0, 1, 3, 2}), g.v());
     }},
    {"a mask that hides every key", "no query sees a key",
     [](Given& g) { return with_mask(g, less(g.keys(), constant(g.graph, 0, DType::i32))); }},
};

TEST(MatchAttention, WhatIsMoreThanScaleAndCausalMaskIsTheScore) {
    for (const NearMiss& other : other_scores) {
        SCOPED_TRACE(other.name);
        Given given;
        given.graph.add_result("y", other.build(given).value());
        const AttentionMatch match = match_attention(given.graph);
        for (const PassRefusal& refusal : match.refused) ADD_FAILURE() << refusal.reason;
        EXPECT_EQ(match.matched, 1);
        verify(match.graph, "match_attention");
        EXPECT_EQ(formula_of(match.graph), other.reason);
        // A softmax of nothing but -infinity is not a number; attention gives zero there.
        const ReferenceTensor x = ReferenceRun(given.graph, given.feed).result("y");
        const ReferenceTensor y = ReferenceRun(match.graph, given.feed).result("y");
        for (std::size_t i = 0; i < x.values.size(); ++i)
            EXPECT_NEAR(y.values[i], std::isnan(x.values[i]) ? 0 : x.values[i], 1e-13);
    }
}

TEST(MatchAttention, LeavesNearMissesAsTheyWereAndSaysWhy) {
    for (const NearMiss& miss : near_products) {
        SCOPED_TRACE(miss.name);
        Given given;
        const OriginScope scope(given.graph, "attn");
        given.graph.add_result("y", miss.build(given).value());
        const AttentionMatch match = match_attention(given.graph);
        EXPECT_EQ(match.matched, 0);
        EXPECT_EQ(print(match.graph), print(given.graph));
        ASSERT_GE(match.refused.size(), 1u);
        std::string reasons;
        for (const PassRefusal& refusal : match.refused) reasons += refusal.reason + "; ";
        EXPECT_NE(reasons.find(miss.reason), std::string::npos) << reasons;
        EXPECT_EQ(match.refused[0].text(), "attn: " + match.refused[0].reason);
    }
}

TEST(MatchAttention, ShowsWhatItDoes) {
    Given g;
    const Tensor q = g.q(), k = g.k(), v = g.v();
    g.graph.add_result("y", matmul(softmax(g.masked(g.scores(q, k) / root)), v).value());
    EXPECT_EQ(print(match_attention(g.graph).graph),
              "%0: f32[2, 3, 5, 4] = input() {dtype=f32, name=q, shape=[2, 3, 5, 4]}\n"
              "%1: f32[2, 3, 5, 4] = input() {dtype=f32, name=k, shape=[2, 3, 5, 4]}\n"
              "%2: f32[2, 3, 5, 4] = input() {dtype=f32, name=v, shape=[2, 3, 5, 4]}\n"
              "%3: f32[2, 3, 5, 4], f32[2, 3, 5] = attention(%q, %k, %v) {causal=true, scale=0.5}\n"
              "result y = %3.0\n");
}

TEST(MatchAttention, KeepsMeaningOfRandomGraphs) {
    // They hold softmaxes and products, hardly attention: nothing may change.
    for (int seed = 0, draws = testing::random_draws(300); seed < draws; ++seed) {
        const testing::RandomGraph random(static_cast<std::uint64_t>(seed));
        const AttentionMatch match = match_attention(random.graph);
        verify(match.graph, "match_attention");
        if (match.matched == 0) {
            ASSERT_EQ(print(match.graph), print(random.graph)) << "seed " << seed;
        }
    }
}

TEST(MatchAttention, FindsAllLayersOfGpt2) {
    const nn::Gpt2Config model{.name = "small",
                               .layers = 3,
                               .heads = 2,
                               .channels = 8,
                               .vocabulary = 11,
                               .context = 9,
                               .dropout = 0};
    Graph graph;
    const Tensor tokens(graph, graph.add_input("tokens", {DType::i32, {2, 7}}));
    const Tensor targets(graph, graph.add_input("targets", {DType::i32, {2, 7}}));
    Value loss = nn::gpt2_loss(model, tokens, targets, {}).value();
    AttentionMatch match = match_attention(graph, {&loss, 1});
    EXPECT_EQ(match.matched, 3);
    EXPECT_TRUE(match.refused.empty());
    EXPECT_EQ(count(match.graph, "softmax") + count(match.graph, "iota"), 0);
    EXPECT_EQ(match.graph.node(loss.node).op->name, "cross_entropy");
    // The origin of the product that each replaces.
    for (std::size_t id = 0; id < match.graph.size(); ++id) {
        const Node& node = match.graph.node(static_cast<NodeId>(id));
        if (node.op->name == "attention") {
            EXPECT_EQ(node.origin.scope.substr(1), "." + node.origin.scope.substr(2));
            EXPECT_TRUE(node.origin.scope.ends_with(".attn")) << node.origin.scope;
        }
    }
}

TEST(MatchAttention, IsAPassOfThePipelineThatIsAskedFor) {
    const auto model = [](Graph& graph) {
        const State weights{.name = "w", .type = {DType::f32, {1, 2, 6, 4}}, .initializer = {}};
        const Tensor w(graph, graph.add_state(weights));
        const Tensor y = matmul(softmax(matmul(w, w, {.transpose_b = true})), w);
        return sum(y, {0, 1, 2, 3}) + sum(softmax(w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        graph.add_update(gradients[0].state, gradients[0].gradient.value());
    };
    const BuiltGraph without = build_training_step(model, update);
    EXPECT_EQ(count(without.graph, "attention"), 0);
    EXPECT_TRUE(without.refused.empty());
    const BuiltGraph with = build_training_step(model, update, {.match_attention = true});
    EXPECT_EQ(count(with.graph, "attention"), 1);
    EXPECT_EQ(count(with.graph, "attention_grad"), 1);
    ASSERT_EQ(with.refused.size(), 1u);
    EXPECT_EQ(with.refused[0].text(), "softmax: the weights go into 'sum', not into a product with values");
    // The same loss, and the same gradient by either way.
    const ReferenceFeed feed{{"w", testing::values_of(testing::f32({1, 2, 6, 4}), 3)}};
    const ReferenceRun expected(without.graph, feed), got(with.graph, feed);
    EXPECT_NEAR(got.result("loss").values[0], expected.result("loss").values[0], 1e-13);
    const std::vector<double> a = got.next(feed).at("w"), b = expected.next(feed).at("w");
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
}

TEST(MatchAttention, StaysWhereTheDeviceRunsItOrItsGradientNot) {
    const auto model = [](Graph& graph) {
        const auto state = [&](const char* name, Shape shape) {
            return Tensor(graph,
                          graph.add_state({.name = name, .type = {DType::f32, shape}, .initializer = {}}));
        };
        const Tensor w = state("w", {1, 2, 6, 4}), scale = state("scale", {2, 1, 1});
        const auto scores = [&] { return matmul(w, w, {.transpose_b = true}); };
        return sum(matmul(softmax(scores() * scale), w), {0, 1, 2, 3}) +
               sum(matmul(softmax(scores() * 0.5), w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        for (const ParameterGradient& each : gradients) graph.add_update(each.state, each.gradient.value());
    };
    for (const char* const without : {"attention", "attention_grad"}) {
        const PipelineOptions options{.match_attention = true};
        const Machine machine{.kernel_of = [&](const Graph&, const Node& node) {
            const bool has = node.op->name != without || !node.attributes.has("score");
            return KernelAnswer{.why_none = has ? "" : "no time"};
        }};
        const BuiltGraph built = build_training_step(model, update, options, machine);
        EXPECT_EQ(count(built.graph, "attention"), 1);
        EXPECT_EQ(count(built.graph, "attention_grad"), 1);
        ASSERT_EQ(built.refused.size(), 1u);
        const bool of_gradient = without == std::string("attention_grad");
        EXPECT_EQ(built.refused[0].reason,
                  fmt::format("the device has no kernel for {}attention of f32 and of such a score: no time",
                              of_gradient ? "the gradient of " : ""));
    }
}

/// A step of one attention over so many positions, of heads of 4, where the machine gives these times to
/// attention and its gradient.
BuiltGraph with_times(std::int64_t positions, std::optional<TimeBesideParts> forward,
                      std::optional<TimeBesideParts> backward, bool fuse = true) {
    const auto model = [&](Graph& graph) {
        const State weights{.name = "w", .type = {DType::f32, {1, 2, positions, 4}}, .initializer = {}};
        const Tensor w(graph, graph.add_state(weights));
        return sum(matmul(softmax(matmul(w, w, {.transpose_b = true})), w), {0, 1, 2, 3});
    };
    const auto update = [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        graph.add_result("loss", loss.value());
        graph.add_update(gradients[0].state, gradients[0].gradient.value());
    };
    const Machine machine{.kernel_of = [=](const Graph&, const Node& node) {
        return KernelAnswer{.time = node.op->name == "attention" ? forward : backward};
    }};
    return build_training_step(model, update, {.match_attention = true, .fuse = fuse}, machine);
}

TEST(MatchAttention, StaysWhereItsLinesTakeLessTimeWithTheFigures) {
    const TimeBesideParts forward{"a kernel", 3000, 2000}, backward{"a kernel", 9000, 4000};
    const BuiltGraph built = with_times(6, forward, backward);
    EXPECT_EQ(count(built.graph, "attention"), 0);
    ASSERT_FALSE(built.refused.empty());
    EXPECT_EQ(built.refused[0].pass, "match_attention");
    EXPECT_EQ(
        built.refused[0].text(),
        "attention: as one operation it takes 2.0 times as long as its lines: about 12.0 us of one thread "
        "beside 6.0 for 6 x 6 scores of heads of 4, forward and backward, by a kernel");
}

TEST(MatchAttention, IsMadeWhereItLosesNothingOrNobodyMeasuredOrScoresAreTheLargerMemory) {
    const TimeBesideParts slow{"a kernel", 9000, 4000}, even{"a kernel", 4990, 4000};
    struct {
        const char* what;
        BuiltGraph built;
        int made;
    } const cases[] = {{"both lose", with_times(6, slow, slow), 0},
                       {"less than a fourth more", with_times(6, even, even), 1},
                       {"no figures", with_times(6, std::nullopt, std::nullopt), 1},
                       {"no figures of the gradient", with_times(6, slow, std::nullopt), 1},
                       {"lines that are not fused", with_times(6, slow, slow, false), 1},
                       {"as many scores as other elements", with_times(16, slow, slow), 0},
                       {"more scores than other elements", with_times(17, slow, slow), 1}};
    for (const auto& each : cases) {
        EXPECT_EQ(count(each.built.graph, "attention"), each.made) << each.what;
        const auto refused = std::ranges::count(each.built.refused, "match_attention", &PassRefusal::pass);
        EXPECT_EQ(refused, each.made == 0 ? 1 : 0) << each.what;
    }
}

}  // namespace
}  // namespace mantissa
