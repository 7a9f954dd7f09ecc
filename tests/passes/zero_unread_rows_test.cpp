// Rows that no loss reads: zeros stand there for products of the forward pass, the loss and all gradients
// stay, and a row that is read by any way is left as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "mantissa/nn/layers.h"
#include "mantissa/passes/attention/lay_out_attention.h"
#include "mantissa/passes/attention/match_attention.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/zero_unread_rows.h"
#include "tests/support/op_cases.h"
#include "tests/support/show_gradients.h"

namespace mantissa {
namespace {

constexpr std::int64_t B = 2, T = 6, H = 2, D = 4, C = H * D, V = 11;

enum class Loss : std::uint8_t {
    counted,        ///< of targets that are not below 0
    mean_of_kept,   ///< a mean over tokens by the mask
    mean_of_all,    ///< a mean over all tokens
    of_sums_before  ///< counted, of sums over this token and those before it
};
enum class Keys : std::uint8_t { kept, kept_before, all };

struct Encoder {
    Loss loss = Loss::counted;
    Keys keys = Keys::kept;
};

Tensor linear(Tensor x, const char* name, std::int64_t to) {
    Graph& graph = x.graph();
    const Tensor w = nn::parameter(graph, name, {x.dim(-1), to}, {});
    return reshape(matmul(reshape(x, {B * T, x.dim(-1)}), w), {B, T, to});
}

Tensor normed(Tensor x, const char* gamma, const char* beta) {
    return layer_norm(x, nn::parameter(x.graph(), gamma, {C}, {}), nn::parameter(x.graph(), beta, {C}, {}));
}

/// A layer of a transformer, its loss, and attention spelled as people spell it.
Tensor traced(Graph& graph, const Encoder& encoder) {
    const Type ids{DType::i32, {B, T}};
    const Tensor tokens(graph, graph.add_input("tokens", ids)), keep(graph, graph.add_input("keep", ids));
    const Tensor targets(graph, graph.add_input("targets", ids));
    const Tensor x = embedding(nn::parameter(graph, "table", {V, C}, {}), tokens);
    const Tensor h = normed(x, "gamma1", "beta1");
    const auto heads = [&](const char* name) {
        return transpose(reshape(linear(h, name, C), {B, T, H, D}), {0, 2, 1, 3});
    };
    Tensor scores = matmul(heads("q"), heads("k"), {.transpose_b = true}) * 0.5;
    Tensor visible = less(constant(graph, 0, DType::i32), reshape(keep, {B, 1, 1, T}));
    if (encoder.keys == Keys::kept_before)
        visible = logical_and(visible, less_equal(iota(graph, {T, T}, 1), iota(graph, {T, T}, 0)));
    if (encoder.keys != Keys::all)
        scores = select(visible, scores, constant(graph, -std::numeric_limits<double>::infinity()));
    const Tensor mixed = transpose(matmul(softmax(scores), heads("v")), {0, 2, 1, 3});
    const Tensor between = x + linear(reshape(mixed, {B, T, C}), "o", C);
    Tensor y = between + linear(gelu(linear(normed(between, "gamma2", "beta2"), "up", 2 * C)), "down", C);
    if (encoder.loss == Loss::of_sums_before) y = cumsum(y, 1);
    if (encoder.loss == Loss::mean_of_all) return mean(y * y);
    if (encoder.loss == Loss::mean_of_kept) {
        const Tensor mask = broadcast_to(reshape(cast(keep, DType::f32), {B, T, 1}), {B, T, C});
        const Tensor pooled = sum(y * mask, {1}) * 0.25;
        return sum(pooled * pooled);
    }
    return counted_cross_entropy(reshape(linear(y, "head", V), {B * T, V}), reshape(targets, {B * T}));
}

/// Before the pass and behind it.
struct Pair {
    Graph before, after;
    Value loss_before, loss_after;

    explicit Pair(const Encoder& encoder) {
        Value loss = traced(before, encoder).value();
        AttentionMatch match = match_attention(before, {&loss, 1});
        EXPECT_EQ(match.matched, 1);
        LaidOutAttention laid = lay_out_attention(match.graph, {&loss, 1});
        before = std::move(laid.graph);
        loss_before = loss_after = loss;
        after = zero_unread_rows(before, {&loss_after, 1});
        verify(after, "zero_unread_rows");
    }
};

int products_without_zeros(const Graph& graph) {
    int products = 0;
    for (NodeId id = 0; id < graph.end(); ++id)
        products += graph.node(id).attributes.has("leaves_zeros_out") ? 1 : 0;
    return products;
}

/// Each token is kept or not, and counted or not, by chance; the first is always both.
ReferenceFeed feed_of(const Graph& graph, std::uint32_t draw) {
    ReferenceFeed feed{
        {"tokens", testing::values_of(testing::ids({B, T}, V), draw)},
        {"keep", testing::values_of(testing::ids({B, T}, 2), draw + 1)},
        {"targets", testing::values_of({{DType::i32, {B, T}}, testing::Values::index, V, -V}, draw + 2)}};
    for (std::size_t i = 0; i < B * T; i += T) feed["keep"][i] = feed["targets"][i] = 1;
    std::uint32_t which = 100 * draw;
    for (const State& state : graph.states()) feed[state.name] = testing::values_of({state.type}, ++which);
    return feed;
}

/// The largest difference of the loss and of any gradient, of the larger result's largest number, over some
/// masks.
double difference(Graph a, Value loss_a, Graph b, Value loss_b) {
    testing::show_gradients(a, {a, loss_a}, differentiate(a, {a, loss_a}));
    testing::show_gradients(b, {b, loss_b}, differentiate(b, {b, loss_b}));
    double worst = 0;
    for (std::uint32_t draw = 0; draw < 8; ++draw) {
        const ReferenceFeed feed = feed_of(a, draw);
        const ReferenceRun x(a, feed), y(b, feed);
        for (const Result& result : a.results()) {
            const std::vector<double>&expected = x.result(result.name).values,
                  &got = y.result(result.name).values;
            double largest = 1e-30;
            for (const double each : expected) largest = std::max(largest, std::abs(each));
            for (std::size_t i = 0; i < expected.size(); ++i) {
                const double apart = std::abs(got[i] - expected[i]) / largest;
                worst = apart <= worst ? worst : apart;  // a NaN stays
            }
        }
    }
    return worst;
}

/// Sums of FP64 that have the same terms, but for zeros.
constexpr double same = 1e-12;

TEST(ZeroUnreadRows, LossAndGradientsStay) {
    struct Case {
        Encoder encoder;
        int products;  ///< that may leave rows out
    };
    for (const Case& test : {Case{{Loss::counted, Keys::kept}, 7},         // all
                             Case{{Loss::counted, Keys::kept_before}, 7},  //
                             Case{{Loss::counted, Keys::all}, 4},          // what keys are made of is read
                             Case{{Loss::mean_of_kept, Keys::kept}, 6},    // there is no head
                             Case{{Loss::mean_of_all, Keys::kept}, 0},     //
                             Case{{Loss::of_sums_before, Keys::kept}, 0}}) {
        const Pair pair(test.encoder);
        EXPECT_EQ(products_without_zeros(pair.after), test.products);
        EXPECT_LE(difference(pair.before, pair.loss_before, pair.after, pair.loss_after), same);
    }
}

/// A pass that forgot that keys are read, as a planted error.
TEST(ZeroUnreadRows, AWayThatIsForgottenShows) {
    const Pair pair({Loss::counted, Keys::kept});
    Rewriter rewriter(pair.after);
    for (NodeId id = 0; id < pair.after.end(); ++id) {
        const Node& node = pair.after.node(id);
        rewriter.copy(id);
        if (node.op->name != "less") continue;  // 0 < keep
        const Tensor seen{rewriter.target(), rewriter.map({id, 0})};
        rewriter.place({id, 0}, logical_and(seen, logical_not(seen)).value());
    }
    const Value loss = rewriter.map(pair.loss_after);
    EXPECT_GT(difference(pair.before, pair.loss_before, rewriter.finish(), loss), 0.01);
}

TEST(ZeroUnreadRows, IsOneSelectionBeforeAllThatReadARow) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 3}}));
    const Tensor targets(graph, graph.add_input("targets", {DType::i32, {4}}));
    const Tensor y = relu(x), w(graph, graph.add_input("w", {DType::f32, {3, 5}}));
    const Tensor logits = matmul(y, w) + matmul(y, w * 2);
    Value loss = counted_cross_entropy(logits, targets).value();
    const Graph after = zero_unread_rows(graph, {&loss, 1});
    const std::string text = print(after);
    EXPECT_NE(text.find("less_equal(0, %targets)"), std::string::npos) << text;
    EXPECT_EQ(products_without_zeros(after), 2) << text;
    std::size_t selections = 0;
    for (std::size_t at = text.find("select("); at != std::string::npos; at = text.find("select(", at + 1))
        ++selections;
    EXPECT_EQ(selections, 1U) << text;
}

TEST(ZeroUnreadRows, ResultsAreReadWhole) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {4, 3}}));
    const Tensor targets(graph, graph.add_input("targets", {DType::i32, {4}}));
    const Tensor logits = matmul(relu(x), Tensor(graph, graph.add_input("w", {DType::f32, {3, 5}})));
    Value loss = counted_cross_entropy(logits, targets).value();
    graph.add_result("logits", logits.value());
    EXPECT_EQ(products_without_zeros(zero_unread_rows(graph, {&loss, 1})), 0);
}

}  // namespace
}  // namespace mantissa
