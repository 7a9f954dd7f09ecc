// The meaning of softmax, attention and rotary positions: each test holds a statement of docs/ir.md, which
// names it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/visible_pairs.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::expect_same;
using testing::infinity;
using testing::Numbers;
using testing::Recording;

TEST(Ir, AttentionIsComputedInFp32) {
    Recording r;
    const Tensor x = r.given({1, 1, 2, 2}, {0.5, 1.25, -2, 3}, DType::bf16);
    const Attributes attributes{{"causal", true}, {"scale", 0.5}};
    const auto y = find_op("attention").definition({r.graph, std::vector{x, x, x}, attributes});
    for (NodeId id = 1; id < y[0].value().node; ++id)
        EXPECT_NE(r.graph.node(id).outputs[0].dtype, DType::bf16);
    EXPECT_EQ(y[0].dtype(), DType::bf16);
    EXPECT_EQ(y[1].dtype(), DType::f32);
    // The log-sum-exp of one score is that score.
    EXPECT_DOUBLE_EQ(r.values(y[1])[0], 0.5 * (0.5 * 0.5 + 1.25 * 1.25));
}

TEST(Ir, SoftmaxOfMaskedScores) {
    Recording r;
    const Tensor x = r.given({3, 3}, {-infinity, 7, 7, -infinity, -infinity, -infinity, infinity, 0, 0});
    // A masked score weighs nothing; a row without any score, or with an infinite one, has no softmax.
    const Numbers y = r.values(softmax(x));
    expect_same({y[0], y[1], y[2]}, {0, 0.5, 0.5});
    for (std::size_t i = 3; i < 9; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
    // But zeros where that is asked for; infinity and NaN stay what they are.
    const Numbers z = r.values(call1("softmax", {x}, {{"zero_rows", true}}));
    expect_same({z[0], z[1], z[2], z[3], z[4], z[5]}, {0, 0.5, 0.5, 0, 0, 0});
    for (std::size_t i = 6; i < 9; ++i) EXPECT_TRUE(std::isnan(z[i])) << i;
}

TEST(Ir, AttentionIsASoftmaxOfScaledProductsTimesValues) {
    Recording r;
    const Shape queries{2, 3, 4, 5}, keys{2, 3, 6, 5};
    Numbers numbers[3];
    for (std::size_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < (i == 0 ? queries : keys).elements(); ++j)
            numbers[i].push_back(std::sin(static_cast<double>(7 * j + 3) * static_cast<double>(i + 1)));
    const Tensor q = r.given(queries, numbers[0]), k = r.given(keys, numbers[1]),
                 v = r.given(keys, numbers[2]);
    const Tensor scores = matmul(q, k, {.transpose_b = true}) * 0.25;
    const auto expect_near = [&](Tensor got, Tensor expected) {
        const Numbers a = r.values(got), b = r.values(expected);
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);
    };
    expect_near(attention(q, k, v, {.scale = 0.25}), matmul(softmax(scores), v));
    expect_near(attention(q, k, v), attention(q, k, v, {.scale = 1 / std::sqrt(5.0)}));
    // Causal: of 6 keys the first of 4 queries sees 3, the last all.
    const Tensor sees = less_equal(iota(r.graph, {4, 6}, 1), iota(r.graph, {4, 6}, 0) + 2.0);
    const Tensor masked = select(sees, scores, constant(r.graph, -infinity));
    expect_near(attention(q, k, v, {.causal = true, .scale = 0.25}), matmul(softmax(masked), v));
    const auto both = call(r.graph, "attention", std::vector{q, k, v}, {{"causal", true}, {"scale", 0.25}});
    expect_near(both[1], log(sum(exp(masked), {-1})));
}

TEST(Ir, AttentionIsCausalFromEitherCorner) {
    constexpr std::int64_t D = 3, E = 5;
    for (const std::int64_t T : {1, 4, 7})
        for (const std::int64_t S : {1, 4, 6})
            for (const AttentionCorner corner : {AttentionCorner::first, AttentionCorner::last}) {
                SCOPED_TRACE(fmt::format("T {} S {} corner {}", T, S, static_cast<int>(corner)));
                Recording r;
                const auto numbers = [&](Shape shape) {
                    Numbers values;
                    for (std::int64_t j = 0; j < shape.elements(); ++j)
                        values.push_back(std::sin(static_cast<double>(7 * j + T * S)));
                    return r.given(shape, values);
                };
                const Tensor q = numbers({2, T, D}), k = numbers({2, S, D}), v = numbers({2, S, E});
                const double first_key = corner == AttentionCorner::first ? 0 : static_cast<double>(S - T);
                const Tensor seen =
                    less_equal(iota(r.graph, {T, S}, 1), iota(r.graph, {T, S}, 0) + first_key);
                const Tensor weights =
                    select(seen, exp(matmul(q, k, {.transpose_b = true}) * 0.5), constant(r.graph, 0.0));
                const Tensor total = sum(weights, {-1}, KeepAxes::yes);
                const Tensor none = equal(total, constant(r.graph, 0.0));
                const Tensor expected = matmul(weights / select(none, constant(r.graph, 1.0), total), v);
                const Tensor got = attention(q, k, v, {.causal = true, .corner = corner, .scale = 0.5});
                ASSERT_EQ(got.shape(), (Shape{2, T, E}));
                const auto expect_near = [](const Numbers& a, const Numbers& b) {
                    ASSERT_EQ(a.size(), b.size());
                    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);
                };
                expect_near(r.values(got), r.values(expected));
                for (const Tensor& x : {q, k, v})
                    expect_near(r.gradient(got * got, x), r.gradient(expected * expected, x));
            }
}

TEST(Ir, AQueryThatSeesNoKeyGivesZeroAndNoGradient) {
    // The same for what is hidden by `visible` and by a score of -infinity. The second of three queries.
    for (const bool by_mask : {true, false}) {
        Recording r;
        const Tensor x = r.given({1, 1, 3, 2}, {0.5, 1.25, -2, 3, 1, 2});
        Graph body;
        const Tensor s(body, body.add_input("s", {DType::f32, {1, 1, 3, 3}}));
        const Tensor hidden = equal(iota(body, {3, 1}, 0), constant(body, 1, DType::i32));
        const Tensor none = constant(body, -infinity);
        body.add_result("score", (by_mask ? s : select(hidden, none, s)).value());
        if (by_mask) {
            const auto boolean = [&](double value) { return constant(body, value, DType::boolean); };
            body.add_result("visible", select(hidden, boolean(0), boolean(1)).value());
        }
        const Attributes attributes = Attributes{{"causal", false}, {"scale", 0.5}}.with("score", Body(body));
        const auto y = call(r.graph, "attention", std::vector{x, x, x}, attributes);
        const Tensor ones = r.given({1, 1, 3, 2}, {1, 2, 3, 4, 5, 6}), lse = r.given({1, 1, 3}, {1, 2, 3});
        const auto gradients = backpropagate(r.graph, y, std::vector{ones, lse}, std::vector{x});
        const Numbers o = r.values(y[0]), sums = r.values(y[1]), dx = r.values(gradients[0]);
        expect_same({o[2], o[3]}, {0, 0});
        EXPECT_EQ(sums[1], -infinity);
        for (const std::size_t row : {0u, 2u}) EXPECT_TRUE(std::isfinite(sums[row]) && o[2 * row] != 0);
        for (const double g : dx) EXPECT_TRUE(std::isfinite(g) && g != 0);  // as key and value it is seen
        // As a query it gets none.
        const auto by_query = call(r.graph, "attention_grad", std::vector{ones, x, x, x, y[0], y[1], lse},
                                   attributes.with("lse_gradient", true));
        const Numbers dq = r.values(by_query[0]);
        expect_same({dq[2], dq[3]}, {0, 0});
        EXPECT_NE(dq[0], 0);
    }
}

TEST(Ir, PairsThatFollowFromPositionsAreCounted) {
    const AttentionExtents e{2, 3, 37, 41, 4, 3};
    const auto count = [&](bool causal, const std::function<Tensor(Graph&, Tensor, Tensor)>& sees) {
        Graph body;
        const Tensor s(body, body.add_input("s", {DType::f32, {2, 3, 37, 41}}));
        const Tensor x(body, body.add_input("x", {DType::boolean, {1, 1, 1, 41}}));
        const Shape pairs{37, 41};
        body.add_result("score", s.value());
        body.add_result("visible", sees(body, iota(body, pairs, 0), iota(body, pairs, 1)).value());
        return visible_pairs({.body = Body(body), .operands = {"s"}}, causal, e) / 6;
    };
    std::int64_t window = 0, disc = 0;
    for (std::int64_t i = 0; i < 37; ++i)
        for (std::int64_t j = 0; j < 41; ++j) {
            window += j <= i + 4 && i - j < 5;
            disc += (i - 20) * (i - 20) + (j - 17) * (j - 17) < 90;
        }
    EXPECT_EQ(count(true, [](Graph&, Tensor i, Tensor j) { return less(i, j + 5.0); }), window);
    EXPECT_EQ(count(false,
                    [](Graph& g, Tensor i, Tensor j) {
                        const auto number = [&](double value) { return constant(g, value, DType::i32); };
                        const Tensor di = i - number(20), dj = j - number(17);
                        return less(di * di + dj * dj, number(90));
                    }),
              disc);
    // Ranges of numbers that are not whole are wider than they say, so single pairs are looked at.
    std::int64_t near = 0;
    for (int i = 0; i < 37; ++i)
        for (int j = 0; j < 41; ++j) near += i - j <= 3;
    EXPECT_EQ(
        count(false, [](Graph& g, Tensor i,
                        Tensor j) { return less_equal(cast(i - j, DType::f32) * 0.1, constant(g, 0.35)); }),
        near);
    // A pair that depends on data may be seen.
    const auto of_data = [](Graph& body, Tensor, Tensor) { return Tensor(body, Value{body.inputs()[1], 0}); };
    EXPECT_EQ(count(false, of_data), 37 * 41);
    EXPECT_EQ(count(true, of_data), 37 * 4 + 37 * 38 / 2);
}

TEST(Ir, AttentionReadsAndWritesTheAxesThatItsLayoutNames) {
    Recording r;
    const Shape heads{2, 3, 4, 5};  // B, H, T, D
    Numbers numbers;
    for (std::int64_t i = 0; i < 3 * heads.elements(); ++i)
        numbers.push_back(std::sin(static_cast<double>(7 * i + 3)));
    const Tensor all = r.given({2, 4, 3, 3, 5}, numbers);  // B, T, part, H, D
    const auto parts = split(transpose(all, {2, 0, 3, 1, 4}), 0, 3);
    const Tensor q = reshape(parts[0], heads), k = reshape(parts[1], heads), v = reshape(parts[2], heads);
    const Tensor plain = transpose(attention(q, k, v, {.causal = true, .scale = 0.25}), {2, 0, 1, 3});
    const auto attend = [&](const char* operands, std::span<const Tensor> tensors) {
        return call(r.graph, "attention", tensors,
                    {{"causal", true},
                     {"operands", std::string(operands)},
                     {"result", std::string("tbhd")},
                     {"scale", 0.25}})[0];
    };
    expect_same(r.values(attend("qkv:btphd", std::vector{all})), r.values(plain));
    const std::vector separate{v, transpose(k, {1, 2, 0, 3}), transpose(q, {2, 1, 0, 3})};
    expect_same(r.values(attend("v:bhtd,k:htbd,q:thbd", separate)), r.values(plain));
    const Tensor kv = transpose(
        concat(std::vector{reshape(v, {1, 2, 3, 4, 5}), reshape(k, {1, 2, 3, 4, 5})}, 0), {1, 2, 3, 0, 4});
    expect_same(r.values(attend("q:bhtd,vk:bhtpd", std::vector{q, kv})), r.values(plain));
    // The gradient of a tensor lies as the tensor does.
    const Tensor laid_out = attend("qkv:btphd", std::vector{all});
    expect_same(r.gradient(laid_out, all), r.gradient(plain, all));
}

TEST(Ir, RotaryTurnsPairsOfHalvesByTheAngleOfTheirPosition) {
    Recording r;
    // One head of four at two positions: pairs (1, 3) and (2, 4), then (5, 7) and (6, 8).
    const Tensor x = r.given({1, 2, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor cosine = r.given({2, 2}, {1, 0, 0.6, -1}), sine = r.given({2, 2}, {0, 1, 0.8, 0});
    const Tensor y = rotary(x, cosine, sine);
    const Numbers expected{1, -4, 3, 2, 5 * 0.6 - 7 * 0.8, -6, 7 * 0.6 + 5 * 0.8, -8};
    expect_same(r.values(y), expected);
    // Its gradient turns back; tables that are learned have x_i + x_j and x_i - x_j.
    expect_same(r.gradient(y, x), {1, 1, 1, -1, 0.6 + 0.8, -1, 0.6 - 0.8, -1});
    expect_same(r.gradient(y, cosine), {1 + 3, 2 + 4, 5 + 7, 6 + 8});
    expect_same(r.gradient(y, sine), {1 - 3, 2 - 4, 5 - 7, 6 - 8});
    const Tensor odd = r.given({1, 1, 1, 3}, {1, 2, 3}), table = r.given({1, 1}, {1});
    EXPECT_NE(error_of<UserError>([&] { rotary(odd, table, table); }).find("in pairs of elements"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] { rotary(x, table, sine); }).find("must have shape [2, 2]"),
              std::string::npos);
}

TEST(Ir, HeadsInARowShareKeysAndValues) {
    Recording r;
    Numbers numbers[3];
    const Shape queries{2, 6, 3, 4}, keys{2, 2, 5, 4};
    for (std::size_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < (i == 0 ? queries : keys).elements(); ++j)
            numbers[i].push_back(std::sin(static_cast<double>(7 * j + 3) * static_cast<double>(i + 1)));
    const Tensor q = r.given(queries, numbers[0]), k = r.given(keys, numbers[1]),
                 v = r.given(keys, numbers[2]);
    // Heads 0 to 2 read the first head of keys, 3 to 5 the second.
    const auto repeated = [](Tensor x) {
        return reshape(broadcast_to(reshape(x, {2, 2, 1, 5, 4}), {2, 2, 3, 5, 4}), {2, 6, 5, 4});
    };
    const Tensor shared = attention(q, k, v, {.causal = true});
    const Tensor alone = attention(q, repeated(k), repeated(v), {.causal = true});
    expect_same(r.values(shared), r.values(alone));
    for (const Tensor& operand : {q, k, v}) {
        const Numbers a = r.gradient(shared, operand), b = r.gradient(alone, operand);
        for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);
    }
    const Tensor five = r.given({2, 5, 3, 4}, Numbers(120));
    EXPECT_NE(error_of<UserError>([&] {
                  attention(five, k, v);
              }).find("5 heads of queries cannot share 2 heads of keys and values"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
