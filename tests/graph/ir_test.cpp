// The meaning of the graph's constructs: each test holds a statement of docs/ir.md, which names it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/optimizer_update.h"
#include "tests/support/error_of.h"
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

TEST(Ir, GeluIsTheTanhForm) {
    Recording r;
    const double x = 0.75, inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(r.values(gelu(r.given({x})))[0], x / 2 * (1 + std::tanh(inner)), 1e-15);
    EXPECT_NEAR(r.values(call1("erf_gelu", {r.given({x})}))[0], x / 2 * (1 + std::erf(x / std::sqrt(2.0))),
                1e-15);
}

}  // namespace
}  // namespace mantissa
