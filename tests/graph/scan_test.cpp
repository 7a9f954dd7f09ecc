// The loop over time against the same steps recorded one after another.
#include "mantissa/graph/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/recording.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::expect_near;
using testing::Numbers;
using testing::Recording;

constexpr std::int64_t T = 6, B = 2, H = 3;

Numbers numbers(std::int64_t count, int which) {
    Numbers values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(std::sin(static_cast<double>(13 * i + 7 * which + 1)));
    return values;
}

ScanStep step(std::span<const Tensor> states, std::span<const Tensor> parts, std::span<const Tensor> whole) {
    const Tensor h = tanh(parts[0] + matmul(states[0], whole[0], {.transpose_b = true}) + whole[1]);
    return {.states = {h, states[1] * whole[2] + h}, .outputs = {h * states[1]}};
}

struct Operands {
    std::vector<Tensor> states, sequences, whole;

    explicit Operands(Recording& r)
        : states{r.given({B, H}, numbers(B * H, 0)), r.given({B, H}, numbers(B * H, 1))},
          sequences{r.given({T, B, H}, numbers(T * B * H, 2))},
          whole{r.given({H, H}, numbers(H * H, 3)), r.given({H}, numbers(H, 4)), r.given({}, {0.75})} {}
    std::vector<Tensor> all() const {
        std::vector<Tensor> tensors = states;
        tensors.insert(tensors.end(), sequences.begin(), sequences.end());
        tensors.insert(tensors.end(), whole.begin(), whole.end());
        return tensors;
    }
};

Scanned unrolled(const Operands& of, Steps steps) {
    std::vector<Tensor> states = of.states, outputs(static_cast<std::size_t>(T)), kept[2];
    const auto keep = [&] {
        for (std::size_t i = 0; i < 2; ++i) kept[i].push_back(reshape(states[i], {1, B, H}));
    };
    keep();
    for (std::int64_t i = 0; i < T; ++i) {
        const std::int64_t at = steps == Steps::forward ? i : T - 1 - i;
        const Tensor part = reshape(slice(of.sequences[0], 0, at, at + 1), {B, H});
        const ScanStep made = step(states, {&part, 1}, of.whole);
        states = made.states;
        outputs[static_cast<std::size_t>(at)] = reshape(made.outputs[0], {1, B, H});
        keep();
    }
    if (steps == Steps::backward)
        for (std::vector<Tensor>& each : kept) std::ranges::reverse(each);
    return {{concat(kept[0], 0), concat(kept[1], 0)}, {concat(outputs, 0)}};
}

TEST(Scan, IsItsStepsOneAfterAnother) {
    for (const Steps steps : {Steps::forward, Steps::backward}) {
        Recording r;
        const Operands of(r);
        const Scanned loop = scan(of.states, of.sequences, of.whole, step, steps);
        const Scanned plain = unrolled(of, steps);
        for (std::size_t i = 0; i < 2; ++i)
            expect_near(r.values(loop.states[i]), r.values(plain.states[i]), 1e-13);
        expect_near(r.values(loop.outputs[0]), r.values(plain.outputs[0]), 1e-13);
        EXPECT_EQ(loop.states[0].shape(), (Shape{T + 1, B, H}));
    }
}

/// By each operand, of each result alone and of all.
TEST(Scan, HasTheGradientsOfItsSteps) {
    for (const Steps steps : {Steps::forward, Steps::backward})
        for (const int which : {0, 1, 2, 3}) {
            SCOPED_TRACE(which);
            Recording r;
            const Operands of(r);
            const auto chosen = [&](const Scanned& all) {
                const Tensor y[] = {all.states[0], all.states[1], all.outputs[0]};
                return which < 3 ? y[which] * y[which]
                                 : slice(y[0] * y[1], 0, 1, T + 1) * y[2] + slice(y[1], 0, 0, T);
            };
            const Tensor loop = chosen(scan(of.states, of.sequences, of.whole, step, steps));
            const Tensor plain = chosen(unrolled(of, steps));
            for (const Tensor& x : of.all()) expect_near(r.gradient(loop, x), r.gradient(plain, x), 1e-13);
        }
}

/// The gradient of a matrix, summed over steps, is one product over the rows of all steps behind the loop; so
/// is that of a bias. The loop that goes back keeps no states.
TEST(Scan, SumsGradientsOverRowsOfAllStepsBehindTheLoop) {
    Recording r;
    const Operands of(r);
    const Tensor y = scan(of.states, of.sequences, of.whole, step).states[0];
    const Tensor ones = constant(r.graph, 1.0, DType::f32, y.shape());
    backpropagate(r.graph, {&y, 1}, {&ones, 1}, of.whole);
    int loops = 0, products = 0;
    for (NodeId id = 0; id < r.graph.end(); ++id) {
        const Node& node = r.graph.node(id);
        products += node.op->name == "matmul" && node.attributes.flag("transpose_a");
        if (node.op->name != "scan" || ++loops != 2) continue;
        const ScanForm form = scan_form(node.attributes);
        EXPECT_FALSE(form.keeps_states);
        EXPECT_TRUE(form.backward);
        EXPECT_EQ(node.outputs[0].shape, (Shape{B, H}));
        const Graph& body = node.attributes.body("body").graph();
        for (const Result& result : body.results())
            EXPECT_NE(body.type(result.value).shape, (Shape{H, H})) << "a sum of matrices";
    }
    EXPECT_EQ(loops, 2);
    EXPECT_EQ(products, 1);
}

TEST(Scan, OperandsAndBodiesThatDoNotFitAreRefused) {
    Recording r;
    const Operands of(r);
    const auto keep = [](std::span<const Tensor> s, std::span<const Tensor>, std::span<const Tensor>) {
        return ScanStep{.states = {s[0], s[1]}, .outputs = {}};
    };
    const auto narrower = [](std::span<const Tensor> s, std::span<const Tensor>, std::span<const Tensor>) {
        return ScanStep{.states = {slice(s[0], 0, 0, 1), s[1]}, .outputs = {}};
    };
    const auto fewer = [](std::span<const Tensor> s, std::span<const Tensor>, std::span<const Tensor>) {
        return ScanStep{.states = {s[0]}, .outputs = {}};
    };
    EXPECT_NE(error_of<UserError>([&] { scan(of.states, {}, {}, keep); }).find("one sequence or more"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] {
                  scan(of.states, std::vector{of.sequences[0], of.whole[0]}, {}, keep);
              }).find("one number of steps"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] { scan(of.states, of.sequences, {}, fewer); }).find("1 states of 2"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] {
                  scan(of.states, of.sequences, {}, narrower);
              }).find("makes f32[1, 3] of state 0, which is f32[2, 3]"),
              std::string::npos);
    EXPECT_NE(error_of<UserError>([&] {
                  scan(of.states, of.sequences, {},
                       [&](std::span<const Tensor> s, std::span<const Tensor>, std::span<const Tensor>) {
                           return ScanStep{.states = {s[0] + of.states[0], s[1]}, .outputs = {}};
                       });
              }).find("belongs to another graph"),
              std::string::npos);
}

}  // namespace
}  // namespace mantissa
