// Attention is found whatever it was spelled with.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/match_attention.h"
#include "tests/support/attention_graphs.h"
#include "tests/support/count_nodes.h"

namespace mantissa {
namespace {

using namespace testing::attending;
using testing::count;

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
Tensor split_heads(Tensor x) { return transpose(reshape(x, {B, T, H, D}), {0, 2, 1, 3}); }
Tensor merged(Tensor o) { return reshape(transpose(o, {0, 2, 1, 3}), {B, T, C}); }

const std::vector<Spelling> layouts = {
    {"split of one projection", true,
     [](Given& g) {
         const auto parts = split(g.input("qkv", {B, T, 3 * C}), -1, 3);
         const Tensor s = g.scores(split_heads(parts[0]), split_heads(parts[1])) / root;
         return merged(matmul(softmax(g.masked(s)), split_heads(parts[2])));
     }},
    {"chunks by slices", true,
     [](Given& g) {
         const Tensor qkv = g.input("qkv", {B, T, 3 * C});
         const auto part = [&](std::int64_t i) { return split_heads(slice(qkv, 2, i * C, (i + 1) * C)); };
         return merged(matmul(softmax(g.masked(g.scores(part(0), part(1)) / root)), part(2)));
     }},
    {"three projections", true,
     [](Given& g) {
         const Tensor x = g.input("x", {B * T, C});
         const auto project = [&](const char* w) {
             return split_heads(reshape(matmul(x, g.input(w, {C, C}), {.transpose_b = true}), {B, T, C}));
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

const std::vector<Spelling> grouped_spellings = {
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
    for (const Spelling& spelling : grouped_spellings) {
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

}  // namespace
}  // namespace mantissa
