// The meaning of the graph's constructs: each test holds a statement of docs/ir.md, which names it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/printer.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/visible_pairs.h"
#include "mantissa/passes/differentiate.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::expect_same;
using testing::infinity;
using testing::nan;
using testing::Numbers;
using testing::Recording;

TEST(Ir, BroadcastingStretchesExtentsOfOneAndMissingAxes) {
    Recording r;
    const Tensor y = r.given({2, 1, 2}, {1, 2, 3, 4}) + r.given({3, 1}, {10, 20, 30});
    EXPECT_EQ(y.shape(), (Shape{2, 3, 2}));
    expect_same(r.values(y), {11, 12, 21, 22, 31, 32, 13, 14, 23, 24, 33, 34});
}

TEST(Ir, OperandsOfANodeHaveOneType) {
    Recording r;
    const Tensor x = r.given({1.0}), y = r.given({1.0}, DType::f64);
    EXPECT_NE(error_of<UserError>([&] { x + y; }).find("operands must have one type, got f32[1] and f64[1]"),
              std::string::npos);
    EXPECT_EQ((x + 0.1).dtype(), DType::f32);
    EXPECT_EQ((y + 0.1).dtype(), DType::f64);
    const Tensor flag = less(x, x);
    EXPECT_NE(error_of<UserError>([&] { flag + flag; }).find("must be a number"), std::string::npos);
}

TEST(Ir, NegativeAxesCountFromTheEnd) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_same(r.values(sum(x, {-1})), {6, 15});
    expect_same(r.values(slice(x, -1, 2, 3)), {3, 6});
}

TEST(Ir, CastsToSixteenBitsRoundToNearestEven) {
    Recording r;
    // BF16 has 7 bits of fraction: a tie goes to the even neighbour, below and above.
    const Tensor x = r.given({1 + 0x1p-8, 1 + 3 * 0x1p-8, 0x1p127 * (2 - 0x1p-8), -infinity, nan});
    expect_same(r.values(cast(x, DType::bf16)), {1, 1 + 0x1p-6, infinity, -infinity, nan});
    // FP16: 65504 is the largest, 2^-24 the smallest; subnormals stay.
    const Tensor z = r.given({65519, 65520, 3 * 0x1p-26, -0x1p-26, 0x1p-25});
    expect_same(r.values(cast(z, DType::f16)), {65504, infinity, 0x1p-24, -0.0, 0});
    // To FP32 the reference does not round: it means the exact number.
    expect_same(r.values(cast(r.given({0.1}, DType::f64), DType::f32)), {0.1});
}

TEST(Ir, CastsToIntegersCutAndToBooleansTestForZero) {
    Recording r;
    const Tensor x = r.given({2.9, -1.75, -0.5, 0.5});
    expect_same(r.values(cast(x, DType::i32)), {2, -1, -0.0, 0});  // integers are held as doubles
    const Tensor z = r.given({0, -0.0, 0.5, nan});
    expect_same(r.values(cast(z, DType::boolean)), {0, 0, 1, 1});
}

TEST(Ir, NanWinsInMaximaAndMinima) {
    Recording r;
    const Tensor a = r.given({nan, 1, 0, -0.0}), b = r.given({1, nan, -0.0, 0});
    // The second of equals is taken, which shows in the sign of a zero.
    expect_same(r.values(maximum(a, b)), {nan, nan, -0.0, 0});
    expect_same(r.values(minimum(a, b)), {nan, nan, -0.0, 0});
    expect_same(r.values(max(r.given({3, 2}, {nan, 1, 2, nan, 1, 4}), {0})), {nan, nan});
}

TEST(Ir, GradientsOfMaximaAtTiesAndNan) {
    Recording r;
    const Tensor a = r.given({2, 1, nan}), b = r.given({2, 3, 1});
    expect_same(r.gradient(maximum(a, b), a), {0.5, 0, 0});
    expect_same(r.gradient(minimum(a, b), a), {0.5, 1, 0});
    const Tensor x = r.given({2, 2}, {5, 5, nan, 5});
    expect_same(r.gradient(max(x, {1}), x), {0.5, 0.5, nan, nan});
}

TEST(Ir, ComparisonsWithNanAreFalse) {
    Recording r;
    const Tensor a = r.given({nan, nan, 0}), b = r.given({nan, 1, -0.0});
    expect_same(r.values(less(a, b)), {0, 0, 0});
    expect_same(r.values(less_equal(a, b)), {0, 0, 1});
    expect_same(r.values(equal(a, b)), {0, 0, 1});
    expect_same(r.values(is_finite(r.given({1, infinity, nan}))), {1, 0, 0});
}

TEST(Ir, SelectTakesNothingFromTheOtherSide) {
    Recording r;
    const Tensor take = r.given({1, 0}, DType::boolean), a = r.given({1, nan}), b = r.given({nan, 2});
    const Tensor y = select(take, a, b);
    expect_same(r.values(y), {1, 2});
    expect_same(r.gradient(y, a), {1, 0});
    expect_same(r.gradient(y, b), {0, 1});
}

TEST(Ir, AGradientOfZeroTimesAnInfiniteDerivativeIsNan) {
    Recording r;
    const Tensor x = r.given({0, 1});
    const Tensor y = select(less(constant(r.graph, 0.5), x), log(x), x);
    expect_same(r.gradient(y, x), {nan, 1});  // at 0: 1 from x, and 0/0 from the log that was not taken
}

TEST(Ir, StopGradientIsItsOperandWithoutAGradient) {
    Recording r;
    const Tensor x = r.given({3, -0.0});
    expect_same(r.values(stop_gradient(x)), {3, -0.0});
    expect_same(r.gradient(x * stop_gradient(x), x), {3, -0.0});
}

TEST(Ir, XPlusZeroIsNotX) {
    Recording r;
    const Tensor x = r.given({-0.0});
    expect_same(r.values(x + 0.0), {0.0});
    expect_same(r.values(x - 0.0), {-0.0});
    expect_same(r.values(x * 1.0), {-0.0});
}

TEST(Ir, NumbersStandOnEitherSideAndAssignmentsNameANewTensor) {
    Recording r;
    const Tensor x = r.given({1, 2, 4});
    expect_same(r.values(1.0 - x), {0, -1, -3});
    expect_same(r.values(2.0 / x + 3.0 * x + (1.0 + x)), {2 + 3 + 2, 1 + 6 + 3, 0.5 + 12 + 5});
    Tensor y = x;
    y += x;
    y *= 3;
    y -= 1.0;
    y /= x;
    expect_same(r.values(y), {5, 5.5, 5.75});
    expect_same(r.values(x), {1, 2, 4});
    EXPECT_EQ((1.0 - r.given({1.0}, DType::bf16)).dtype(), DType::bf16);
}

TEST(Ir, PowersAndSizes) {
    Recording r;
    const Tensor x = r.given({-2, 0.0, 4});
    EXPECT_EQ(r.values(abs(x)), (Numbers{2, 0, 4}));  // the zero's sign is either
    expect_same(r.gradient(abs(x), x), {-1, 0, 1});
    expect_same(r.values(pow(x, 3)), {-8, 0, 64});
    expect_same(r.gradient(pow(x, 3), x), {12, 0, 48});
    expect_same(r.values(pow(x, -2)), {0.25, infinity, 0.0625});
    expect_same(r.values(pow(r.given({infinity, nan}), 0)), {1, 1});
    expect_same(r.values(pow(r.given({1, -1}), 0.5)), {1, nan});
    for (const double exponent : {5.0, 6.0, 64.0})
        EXPECT_EQ(r.values(pow(x, exponent))[0], std::pow(-2, exponent));
    EXPECT_NEAR(r.values(pow(x, 1.5))[2], 8, 1e-14);
    expect_same(r.values(maximum(x, 0.0)), {0, 0, 4});
    expect_same(r.values(minimum(x, 0.0)), {-2, 0, 0});
}

TEST(Ir, ReductionsWithoutAxesGoOverAll) {
    Recording r;
    const Tensor x = r.given({2, 2}, {1, 2, 3, 6});
    expect_same(r.values(sum(x)), {12});
    expect_same(r.values(mean(x)), {3});
    expect_same(r.values(max(x)), {6});
    EXPECT_EQ(mean(x).shape(), Shape());
}

TEST(Ir, ReductionsOfNothing) {
    Recording r;
    const Tensor none = r.given({2, 0}, Numbers()), x = r.given({2}, {1, 2});
    expect_same(r.values(sum(none, {1})), {0, 0});
    expect_same(r.values(max(none, {1})), {-infinity, -infinity});
    expect_same(r.values(sum(x, std::vector<std::int64_t>())), {1, 2});
    EXPECT_EQ(sum(r.given({2, 3}, Numbers(6)), {0, 1}, KeepAxes::yes).shape(), (Shape{1, 1}));
}

TEST(Ir, MovementPutsElementsWhereItSays) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_same(r.values(reshape(x, {3, -1})), {1, 2, 3, 4, 5, 6});
    const Tensor y = transpose(reshape(x, {1, 2, 3}), {2, 0, 1});  // axis i of y is axis order[i] of x
    EXPECT_EQ(y.shape(), (Shape{3, 1, 2}));
    expect_same(r.values(y), {1, 4, 2, 5, 3, 6});
    expect_same(r.values(slice(x, 1, 1, 3)), {2, 3, 5, 6});
    expect_same(r.values(pad(x, 1, 1, 0)), {0, 1, 2, 3, 0, 4, 5, 6});
    expect_same(r.values(split(x, 1, 3)[1]), {2, 5});
    expect_same(r.values(concat(split(x, 0, 2), 1)), {1, 2, 3, 4, 5, 6});
    expect_same(r.values(iota(r.graph, {2, 2}, 1)), {0, 1, 0, 1});
}

TEST(Ir, EmbeddingTakesRowsAndRefusesIdsOutside) {
    Recording r;
    const Tensor table = r.given({3, 2}, {1, 2, 3, 4, 5, 6});
    const Tensor y = embedding(table, r.given({2, 0, 2}, DType::i32));
    expect_same(r.values(y), {5, 6, 1, 2, 5, 6});
    expect_same(r.gradient(y, table), {1, 1, 0, 0, 2, 2});  // a row used twice gets both
    const Tensor whole = r.given({2, 1}, {-2147483648.0, 7}, DType::i32);
    expect_same(r.values(embedding(whole, r.given({1, 0}, DType::i32))), {7, -2147483648.0});
    EXPECT_NE(error_of<UserError>([&] {
                  take(less(table, table), 0, r.given({0}, DType::i32));
              }).find("the table must be floating or i32, got bool[3, 2]; cast it"),
              std::string::npos);
    for (double id : {-1.0, 3.0}) {
        Recording bad;
        embedding(bad.given({3, 1}, {0, 0, 0}), bad.given({id}, DType::i32));
        EXPECT_NE(error_of<UserError>([&] {
                      ReferenceRun(bad.graph, bad.feed);
                  }).find("is outside the table of 3 rows"),
                  std::string::npos);
    }
}

TEST(Ir, AnOriginMayBeALineOfAnyLanguage) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6});
    {
        const OriginScope layer(r.graph, Origin{.scope = "h.0", .line = Line("folder/model.py", 52)});
        EXPECT_EQ(r.graph.node((x + x).value().node).origin.line.text(), "model.py:52");
        EXPECT_EQ(error_of<UserError>([&] {
                      matmul(x, x);
                  }).substr(0, std::string_view("matmul (traced in h.0 at model.py:52): ").size()),
                  "matmul (traced in h.0 at model.py:52): ");
    }
    EXPECT_EQ(r.graph.node((x + x).value().node).origin.line.text(),
              "ir_test.cpp:" + std::to_string(__LINE__ - 1));
}

TEST(Ir, WriteSliceWritesAPartAtAPlaceGivenWhenItRuns) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6}), part = r.given({2, 1}, {7, 8});
    expect_same(r.values(write_slice(x, part, r.given(Shape{}, {1.0}, DType::i32), 1)), {1, 7, 3, 4, 8, 6});
    for (double start : {-1.0, 3.0}) {
        Recording bad;
        write_slice(bad.given({2, 3}, Numbers(6)), bad.given({2, 1}, {7, 8}),
                    bad.given(Shape{}, {start}, DType::i32), 1);
        EXPECT_NE(
            error_of<UserError>([&] { ReferenceRun(bad.graph, bad.feed); }).find("is outside an axis of 3"),
            std::string::npos);
    }
}

TEST(Ir, MatmulTransposesWhatIsStoredTransposedAndAddsTheBias) {
    Recording r;
    const Tensor a = r.given({2, 3}, {1, 2, 3, 4, 5, 6}), b = r.given({3, 2}, {1, 0, 0, 1, 2, 0});
    const Numbers product{7, 2, 16, 5};  // [2, 3] x [3, 2]
    expect_same(r.values(matmul(a, b)), product);
    const Tensor at = r.given({3, 2}, {1, 4, 2, 5, 3, 6}), bt = r.given({2, 3}, {1, 0, 2, 0, 1, 0});
    expect_same(r.values(matmul(at, bt, {.transpose_a = true, .transpose_b = true})), product);
    const Tensor bias = r.given({10, 20});
    expect_same(r.values(matmul(a, b, {.bias = bias})), {17, 22, 26, 25});
    const Tensor none = r.given({1, 0}, Numbers()), nothing = r.given({0, 2}, Numbers());
    expect_same(r.values(matmul(none, nothing, {.bias = bias})), {10, 20});
    const Tensor batch = r.given({1, 3, 2}, Numbers(6)), batches = r.given({2, 2, 3}, Numbers(12));
    EXPECT_NE(error_of<UserError>([&] { matmul(batches, batch); }).find("batches differ"), std::string::npos);
}

TEST(Ir, RandomNumbersAreAFunctionOfSeedStepOperationAndElement) {
    Recording r;
    const Tensor seed = r.given({}, {5}, DType::i64), step = r.given({}, {9}, DType::i64);
    const Numbers drawn = r.values(random_uniform(seed, step, 3, {2, 5}));
    const RandomStream stream{.seed = 5, .step = 9, .operation = 3};
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        EXPECT_EQ(drawn[i], static_cast<double>(stream.uniform(i)));
        EXPECT_EQ(drawn[i], std::floor(drawn[i] * 0x1p24) * 0x1p-24);
        EXPECT_TRUE(drawn[i] >= 0 && drawn[i] < 1);
    }
    EXPECT_EQ(r.values(random_uniform(seed, step, 3, {10})), drawn);  // the element's number, not its place
    EXPECT_NE(r.values(random_uniform(seed, step, 4, {10})), drawn);
    EXPECT_NE(r.values(random_uniform(step, seed, 3, {10})), drawn);
}

TEST(Ir, DropoutIsItsOwnGradient) {
    Recording r;
    const RandomState random{r.given({}, {5}, DType::i64), r.given({}, {9}, DType::i64)};
    const Tensor x = r.given(Numbers(64, 3.0));
    const Tensor y = dropout(x, random, 0.25, 3);
    const Numbers u = r.values(random_uniform(random.seed, random.step, 3, {64}));
    Numbers mask;
    for (double number : u) mask.push_back(number < 0.25 ? 0 : 1 / 0.75);
    Numbers scaled = mask;
    for (double& value : scaled) value *= 3;
    expect_same(r.values(y), scaled);
    expect_same(r.gradient(y, x), mask);
    EXPECT_EQ(dropout(x, random, 0, 4).value(), x.value());  // a rate of 0 records nothing
}

TEST(Ir, CompositesAreComputedInFp32) {
    for (const char* op : {"softmax", "gelu"}) {
        Recording r;
        const Tensor x = r.given({0.5, 1.25, -2}, DType::bf16);
        const Tensor y = find_op(op).definition({r.graph, {&x, 1}, {}})[0];
        for (NodeId id = 1; id < y.value().node; ++id)
            EXPECT_NE(r.graph.node(id).outputs[0].dtype, DType::bf16) << op;
        EXPECT_EQ(y.dtype(), DType::bf16);
        // Rounded once: as if all were done in FP64 and cast at the end.
        const Tensor wide = call1(op, {cast(x, DType::f64)});
        expect_same(r.values(call1(op, {x})), r.values(cast(wide, DType::bf16)));
        EXPECT_EQ(wide.dtype(), DType::f64);
    }
}

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

TEST(Ir, LayerNormDividesByTheBiasedDeviation) {
    Recording r;
    const Tensor x = r.given({1, 2}, {1, 5}), gamma = r.given({2, 3}), beta = r.given({10, 20});
    const auto y = call(r.graph, "layer_norm", std::vector{x, gamma, beta}, {{"epsilon", 0.5}});
    const double reciprocal = 1 / std::sqrt(4 + 0.5);  // the variance of 1 and 5 is 4, their mean 3
    expect_same(r.values(y[1]), {3});
    expect_same(r.values(y[2]), {reciprocal});
    expect_same(r.values(y[0]), {-2 * reciprocal * 2 + 10, 2 * reciprocal * 3 + 20});
    EXPECT_NE(error_of<InternalError>([&] { r.gradient(y[1], x); }).find("not differentiated"),
              std::string::npos);
}

TEST(Ir, RmsNormDividesByTheRootOfTheMeanSquare) {
    Recording r;
    const Tensor x = r.given({1, 2}, {1, 7}), gamma = r.given({2, 3});
    const auto y = call(r.graph, "rms_norm", std::vector{x, gamma}, {{"epsilon", 0.5}});
    const double reciprocal = 1 / std::sqrt(25 + 0.5);  // the mean of 1 and 49 is 25
    expect_same(r.values(y[1]), {reciprocal});
    expect_same(r.values(y[0]), {reciprocal * 2, 7 * reciprocal * 3});
    EXPECT_NE(error_of<InternalError>([&] { r.gradient(y[1], x); }).find("not differentiated"),
              std::string::npos);
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

TEST(Ir, ALiteralIsItsNumbersInRowMajorOrder) {
    Recording r;
    expect_same(r.values(literal(r.graph, {1, 2.5, -3, 0.1, 5, 6}, DType::f32, {2, 3})),
                {1, 2.5, -3, static_cast<double>(0.1f), 5, 6});
    EXPECT_NE(error_of<UserError>([&] {
                  literal(r.graph, {1, 2}, DType::f32, {3});
              }).find("2 values are given for f32[3]"),
              std::string::npos);
}

TEST(Ir, ALiteralHasEveryType) {
    Recording r;
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                              DType::u8, DType::s8, DType::boolean}) {
        SCOPED_TRACE(name_of(dtype));
        const Tensor few = literal(r.graph, {1, 0, 1}, dtype, {3});
        expect_same(r.values(few), {1, 0, 1});
        EXPECT_NE(print(r.graph, few.value().node).find("values=[1, 0, 1]"), std::string::npos);
        EXPECT_EQ(few.dtype(), dtype);
    }
    expect_same(r.values(literal(r.graph, {-128, 127}, DType::s8, {2})), {-128, 127});
    const auto refusal = [&](std::vector<double> numbers, DType dtype) {
        return error_of<UserError>(
            [&] { literal(r.graph, numbers, dtype, {std::ssize(numbers)}, std::source_location{}); });
    };
    EXPECT_EQ(refusal({0.5}, DType::i32), "literal: i32 has no number 0.5");
    EXPECT_EQ(refusal({128}, DType::s8), "literal: s8 has no number 128");
    EXPECT_EQ(refusal({-1}, DType::u8), "literal: u8 has no number -1");
    EXPECT_EQ(refusal({2}, DType::boolean), "literal: bool has no number 2");
    EXPECT_EQ(refusal({9223372036854775808.0}, DType::i64),
              "literal: i64 has no number 9.223372036854776e+18");
    EXPECT_EQ(error_of<UserError>([] { SharedData(DType::f32, std::vector<std::byte>(6)); }),
              "6 bytes are no whole number of f32");
    EXPECT_EQ(error_of<UserError>([] { SharedData(DType::boolean, std::vector{std::byte{3}}); }),
              "a bool is stored as 0 or 1, and another byte is among those given");
}

TEST(Ir, ALiteralThatIsLargeIsPrintedShortAndSharedByWhoeverHoldsIt) {
    std::vector<double> numbers(4096);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    const SharedData data(DType::f32, numbers);
    numbers[4000] += 1;
    const SharedData other(DType::f32, numbers);
    EXPECT_LT(data.text().size(), 64u);
    EXPECT_NE(data.text(), other.text());
    EXPECT_NE(data.text(), SharedData(DType::i32, numbers).text());
    EXPECT_FALSE(data == other);
    Recording r;
    const Tensor x = literal(r.graph, data, {64, 64});
    const Attributes& kept = r.graph.node(x.value().node).attributes;
    EXPECT_EQ(kept.data("values").bytes().data(), data.bytes().data());
    EXPECT_EQ(kept.data("values").number(4095), 4095);
    // Two NaNs that differ have no numbers that tell them.
    const auto of_bits = [](std::uint32_t bits) {
        std::vector<std::byte> bytes(sizeof bits);
        std::memcpy(bytes.data(), &bits, sizeof bits);
        return SharedData(DType::f32, std::move(bytes));
    };
    EXPECT_NE(of_bits(0x7fc00000).text(), of_bits(0x7fc00001).text());
}

TEST(Ir, SumsUpToEachElementOfAnyAxis) {
    Recording r;
    const Tensor x = r.given({2, 3}, {1, 2, 3, 4, 5, 6});
    expect_same(r.values(cumsum(x, -1)), {1, 3, 6, 4, 9, 15});
    expect_same(r.values(cumsum(x, 0)), {1, 2, 3, 5, 7, 9});
    expect_same(r.values(cumsum(reshape(x, {1, 3, 2}), 1)), {1, 2, 4, 6, 9, 12});
    const Tensor weights = r.given({2, 3}, {10, 20, 30, 40, 50, 60});
    expect_same(r.gradient(cumsum(x, 1) * weights, x), {60, 50, 30, 150, 110, 60});
    expect_same(r.gradient(cumsum(x, 0) * weights, x), {50, 70, 90, 40, 50, 60});
    // No sum is changed by what stands behind it.
    const Tensor wild = r.given({5}, {1, infinity, 2, -infinity, 3});
    expect_same(r.values(cumsum(wild, 0)), {1, infinity, infinity, nan, nan});
    std::vector<double> counted;
    for (int i = 1; i <= 277; ++i) counted.push_back(i);  // three levels of blocks of sixteen
    expect_same(r.values(cumsum(r.given({277}, std::vector<double>(277, 1)), 0)), counted);
}

TEST(Ir, OrdersAreStableAndNanIsGreatest) {
    Recording r;
    const Tensor x = r.given({2, 5}, {3, nan, -0.0, 0, 3, infinity, -1, -infinity, nan, -1});
    expect_same(r.values(argsort(x)), {2, 3, 0, 4, 1, 2, 1, 4, 0, 3});
    expect_same(r.values(argsort(x, 1, Order::descending)), {1, 0, 4, 2, 3, 3, 0, 1, 4, 2});
    expect_same(r.values(argsort(x, 0)), {0, 1, 1, 0, 1, 1, 0, 0, 1, 0});
    const Sorted top = top_k(x, 3);
    expect_same(r.values(top.indices), {1, 0, 4, 3, 0, 1});
    expect_same(r.values(top.values), {nan, 3, 3, nan, infinity, -1});
    const Tensor y = r.given({4}, {2, 7, 2, 5});
    const Tensor weights = r.given({4}, {10, 20, 30, 40});
    expect_same(r.values(sort(y).values), {2, 2, 5, 7});
    expect_same(r.gradient(sort(y).values * weights, y), {10, 40, 20, 30});
    const auto refusal = [&](auto&& call) { return error_of<UserError>(call); };
    EXPECT_NE(refusal([&] { top_k(x, 6); }).find("the first 6 of 5 elements"), std::string::npos);
    EXPECT_NE(refusal([&] { sort(x, 2); }).find("has no axis 2"), std::string::npos);
}

TEST(Ir, ImagesAreReadWhereTheirPixelsLie) {
    Recording r;
    const Tensor line = r.given({1, 1, 3, 1}, {0, 4, 8});
    const auto resized = [&](std::int64_t extent, ResizeOptions options = {}) {
        return r.values(resize(line, {1, extent}, options));
    };
    expect_same(resized(6), {0, 1, 3, 5, 7, 8});
    expect_same(resized(5, {.align_corners = true}), {0, 2, 4, 6, 8});
    expect_same(resized(1, {.align_corners = true}), {0});
    expect_same(resized(5, {.sampling = Sampling::nearest}), {0, 0, 4, 4, 8});
    expect_same(resized(2, {.sampling = Sampling::nearest}), {0, 4});
    const Tensor image = r.given({1, 2, 2, 1}, {1, 2, 3, 4});
    // The middle, a corner pixel's middle, half a pixel beyond the edge, and nowhere.
    const Tensor grid = r.given({1, 1, 4, 2}, {0, 0, -0.5, -0.5, 1, -0.5, 9, 9});
    expect_same(r.values(grid_sample(image, grid)), {2.5, 1, 1, 0});
    expect_same(r.values(grid_sample(image, grid, {.outside = Outside::border})), {2.5, 1, 2, 4});
    expect_same(r.values(grid_sample(image, grid, {.align_corners = true})), {2.5, 1.75, 2.5, 0});
    expect_same(r.values(grid_sample(image, grid, {.sampling = Sampling::nearest})), {1, 1, 0, 0});
}

TEST(Ir, BagsOfRows) {
    Recording r;
    const Tensor table = r.given({3, 2}, {1, 10, 2, 20, 4, 40});
    const Tensor ids = r.given({2, 2}, {0, 2, 1, 1}, DType::i32);
    expect_same(r.values(embedding_bag(table, ids)), {2.5, 25, 2, 20});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::sum, .ignore_id = 1})), {5, 50, 0, 0});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::mean, .ignore_id = 2})), {1, 10, 2, 20});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::max, .ignore_id = 1})), {4, 40, 0, 0});
    const Tensor weights = r.given({2, 2}, {1, 2, 3, -1});
    expect_same(r.values(embedding_bag(table, ids, {.bag = Bag::sum, .weights = weights})), {9, 90, 4, 40});
}

TEST(Ir, GroupsOfRowsMeetMatricesOfTheirOwn) {
    Recording r;
    const Tensor x = r.given({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor w = r.given({3, 2, 1}, {1, 0, 9, 9, 0, 1});
    const Tensor counts = r.given({3}, {2, 0, 1}, DType::i32);
    const Tensor y = grouped_matmul(x, w, counts);
    expect_same(r.values(y), {1, 3, 6, 0});
    expect_same(r.gradient(y, w), {4, 6, 0, 0, 5, 6});
    expect_same(r.gradient(y, x), {1, 0, 1, 0, 0, 1, 0, 0});
    const Tensor turned = r.given({3, 1, 2}, {1, 0, 9, 9, 0, 1});
    expect_same(r.values(grouped_matmul(x, turned, counts, GroupedWeights::transposed)), {1, 3, 6, 0});
    // Rows that go to two experts each, and back to their places.
    const Tensor scores = r.given({2, 3}, {0.5, 0.1, 0.4, 0.2, 0.7, 0.1});
    const Routed to = route(scores, 2);
    expect_same(r.values(to.experts), {0, 2, 1, 0});
    expect_same(r.values(to.counts), {2, 1, 1});
    expect_same(r.values(to.source), {0, 1, 1, 0});
    expect_same(r.values(to.place), {0, 3, 2, 1});
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

TEST(Ir, GeluIsTheTanhForm) {
    Recording r;
    const double x = 0.75, inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(r.values(gelu(r.given({x})))[0], x / 2 * (1 + std::tanh(inner)), 1e-15);
    EXPECT_NEAR(r.values(call1("erf_gelu", {r.given({x})}))[0], x / 2 * (1 + std::erf(x / std::sqrt(2.0))),
                1e-15);
}

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
