// Mistakes of a user in a model end in a UserError that names the operation and the line, never in an
// InternalError.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

using testing::error_here;

Tensor input_of(Graph& graph, Shape shape, DType dtype = DType::f32) {
    return {graph, graph.add_input(fmt::format("x{}", graph.size()), {dtype, std::move(shape)})};
}

TEST(Refusals, AxesOutsideOrNamedTwice) {
    Graph graph;
    const Tensor x = input_of(graph, {1, 8, 8, 3});
    EXPECT_EQ(error_here([&] {
                  mean(x, {1, 4});
              }),
              "mean (traced at HERE): axis 4 is outside f32[1, 8, 8, 3]");
    EXPECT_EQ(error_here([&] { sum(x, {-5}); }), "sum (traced at HERE): axis -5 is outside f32[1, 8, 8, 3]");
    EXPECT_EQ(error_here([&] { mean(x, {1, -3}); }), "sum (traced at HERE): axis 1 is named twice");
    EXPECT_EQ(error_here([&] { max(x, {7}); }), "max (traced at HERE): axis 7 is outside f32[1, 8, 8, 3]");
    EXPECT_EQ(error_here([&] { x.dim(4); }), "dim (traced at HERE): axis 4 is outside f32[1, 8, 8, 3]");
    EXPECT_EQ(error_here([&] { slice(x, -5, 0, 1); }),
              "slice (traced at HERE): axis -5 is outside f32[1, 8, 8, 3]");
}

TEST(Refusals, EmptyTensorsAndThoseOfAnotherGraph) {
    Graph graph, other;
    const Tensor x = input_of(graph, {2, 3}), y = input_of(other, {2, 3}), none;
    const std::string words = " is an empty Tensor; assign the result of an operation to it first";
    EXPECT_EQ(error_here([&] { none* x; }), "mul (traced at HERE): operand 0" + words);
    EXPECT_EQ(error_here([&] { x + none; }), "add (traced at HERE): operand 1" + words);
    EXPECT_EQ(error_here([&] { none * 2.0; }), "mul (traced at HERE): operand 0" + words);
    EXPECT_EQ(error_here([&] { exp(none); }), "exp (traced at HERE): operand 0" + words);
    EXPECT_EQ(error_here([&] { reshape(none, {-1}); }), "reshape (traced at HERE): operand 0" + words);
    EXPECT_EQ(error_here([&] { mean(none, {0}); }), "mean (traced at HERE): operand 0" + words);
    EXPECT_EQ(error_here([&] { matmul(x, x, {.bias = none}); }),
              "matmul (traced at HERE): operand 2" + words);
    EXPECT_EQ(error_here([&] { ops::concat({}, 0); }),
              "concat (traced at HERE): expected one operand or more, got none");
    EXPECT_EQ(error_here([&] { x - y; }), "sub (traced at HERE): operand 1 belongs to another graph");
    const std::string empty =
        "an empty Tensor (traced at HERE): it has no graph, type or shape; assign the result of an operation "
        "to it first";
    EXPECT_EQ(error_here([&] { none.shape(); }), empty);
    EXPECT_EQ(error_here([&] { none.dim(0); }), empty);
}

TEST(Refusals, OperatorsNameScopeAndLine) {
    Graph graph;
    const Tensor x = input_of(graph, {4, 8, 8, 16}), y = input_of(graph, {4, 8, 8, 32});
    const OriginScope block(graph, "block1");
    EXPECT_EQ(error_here([&] { x + y; }),
              "add (traced in block1 at HERE): shapes [4, 8, 8, 16] and [4, 8, 8, 32] do not "
              "fit: axis 1 from the end is 16 and 32");
}

TEST(Refusals, ExtentsThatDoNotFit) {
    Graph graph;
    const Tensor x = input_of(graph, {4, 3});
    EXPECT_EQ(error_here([&] {
                  reshape(x, {-1, 5});
              }),
              "reshape (traced at HERE): f32[4, 3] has 12 elements, which [-1, 5] cannot share");
    EXPECT_NE(error_here([&] {
                  reshape(x, {-1, 1ll << 62, 4});
              }).find("more elements than can be counted"),
              std::string::npos);
    EXPECT_EQ(error_here([&] { broadcast_to(input_of(graph, {1}), {-1}); }),
              "broadcast (traced at HERE): extents must not be negative, got [-1]");
    EXPECT_EQ(error_here([&] { call(graph, "typo", {}); }), "there is no operation 'typo'");
}

TEST(Refusals, StatesThatAreTakenUnknownOrOfAnotherType) {
    Graph graph;
    const auto state = [&] {
        return Tensor(graph, graph.add_state({.name = "w", .type = {DType::f32, {2}}, .initializer = {}}));
    };
    const Tensor w = state();
    EXPECT_EQ(error_here(state),
              "there are two states named 'w': the first, the second; give the layers different "
              "names, or an nn::Scope around one (nn.scope in Python)");
    EXPECT_EQ(error_here([&] { graph.add_update(graph.find_state("typo"), w.value()); }),
              "update: there is no state -1; the graph has 1");
    EXPECT_EQ(error_here([&] { graph.add_update(0, sum(w, {0}).value()); }),
              "update: state 'w' is f32[2], its update is f32[]");
    graph.add_update(0, w.value());
    EXPECT_EQ(error_here([&] { graph.add_update(0, w.value()); }), "update: state 'w' is updated twice");
}

using Function = std::function<void(Tensor, Tensor, Tensor)>;
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = -(least + 1);

std::vector<Function> elements_and_movement() {
    return {
        [](Tensor a, Tensor b, Tensor) { a + b; },
        [](Tensor a, Tensor b, Tensor) { a / b; },
        [](Tensor a, Tensor, Tensor) { a * 2.0; },
        [](Tensor a, Tensor, Tensor) { 1.0 - a; },
        [](Tensor a, Tensor b, Tensor) { a /= b; },
        [](Tensor a, Tensor, Tensor) { a += 1; },
        [](Tensor a, Tensor, Tensor) { maximum(a, 0.0); },
        [](Tensor a, Tensor, Tensor) { abs(a); },
        [](Tensor a, Tensor, Tensor) { pow(a, 2.5); },
        [](Tensor a, Tensor, Tensor) { pow(a, 0); },
        [](Tensor a, Tensor, Tensor) { mean(a); },
        [](Tensor a, Tensor, Tensor) { -a; },
        [](Tensor a, Tensor b, Tensor) { maximum(a, b); },
        [](Tensor a, Tensor b, Tensor) { less(a, b); },
        [](Tensor a, Tensor b, Tensor) { logical_and(a, b); },
        [](Tensor a, Tensor b, Tensor c) { select(a, b, c); },
        [](Tensor a, Tensor, Tensor) { exp(a); },
        [](Tensor a, Tensor, Tensor) { is_finite(a); },
        [](Tensor a, Tensor, Tensor) { cast(a, DType::bf16); },
        [](Tensor a, Tensor, Tensor) { stop_gradient(a); },
        [](Tensor a, Tensor, Tensor) {
            reshape(a, {-1, -1});
        },
        [](Tensor a, Tensor, Tensor) {
            reshape(a, {-1, 0});
        },
        [](Tensor a, Tensor, Tensor) {
            transpose(a, {1, -1});
        },
        [](Tensor a, Tensor, Tensor) {
            broadcast_to(a, {2, -3});
        },
        [](Tensor a, Tensor, Tensor) { slice(a, 1, most, least); },
        [](Tensor a, Tensor, Tensor) { slice(a, -3, -1, 2); },
        [](Tensor a, Tensor, Tensor) { pad(a, 1, -1, 2); },
        [](Tensor a, Tensor, Tensor) { pad(a, 1, most, most); },
        [](Tensor a, Tensor, Tensor) { split(a, 1, 0); },
        [](Tensor a, Tensor, Tensor) { split(a, 0, -1); },
        [](Tensor a, Tensor b, Tensor c) {
            concat(std::vector{a, b, c}, -1);
        },
        [](Tensor a, Tensor b, Tensor c) { write_slice(a, b, c, 1); },
        [](Tensor a, Tensor b, Tensor) { embedding(a, b); },
        [](Tensor a, Tensor, Tensor) { sum(a, std::vector<std::int64_t>()); },
        [](Tensor a, Tensor, Tensor) { sum_as(DType::i32, a, {0}); },
        [](Tensor a, Tensor, Tensor) {
            max(a, {-1, 1});
        },
        [](Tensor a, Tensor, Tensor) { mean(a, {-2}); },
    };
}

std::vector<Function> contractions_and_networks() {
    return {
        [](Tensor a, Tensor b, Tensor) { matmul(a, b); },
        [](Tensor a, Tensor b, Tensor c) {
            matmul(a, b, {.transpose_a = true, .bias = c, .multiply = "typo"});
        },
        [](Tensor a, Tensor b, Tensor c) { conv2d(a, b, {.bias = c}); },
        [](Tensor a, Tensor, Tensor) {
            conv2d(a, a, {.stride = {0, -1}});
        },
        [](Tensor a, Tensor, Tensor) {
            conv2d(a, a, {.padding = {-9, most, 0, 0}});
        },
        [](Tensor a, Tensor, Tensor) {
            conv2d(a, a, {.dilation = {0, most}});
        },
        [](Tensor a, Tensor, Tensor) { conv2d(a, a, {.groups = 0}); },
        [](Tensor a, Tensor b, Tensor c) { attention(a, b, c); },
        [](Tensor a, Tensor b, Tensor c) { layer_norm(a, b, c); },
        [](Tensor a, Tensor b, Tensor) { rms_norm(a, b); },
        [](Tensor a, Tensor b, Tensor c) { rotary(a, b, c); },
        [](Tensor a, Tensor, Tensor) { softmax(a); },
        [](Tensor a, Tensor, Tensor) { gelu(a); },
        [](Tensor a, Tensor, Tensor) { elu(a, -1.0); },
        [](Tensor a, Tensor b, Tensor c) { batch_norm(a, b, c); },
        [](Tensor a, Tensor b, Tensor c) { normalize(a, b, c, {.mean = b, .variance = c}); },
        [](Tensor a, Tensor, Tensor) {
            max_pool2d(a, {.window = {2, 2}, .stride = {0, 0}});
        },
        [](Tensor a, Tensor, Tensor) {
            max_pool2d(a, {.window = {0, -1}, .stride = {1, 1}});
        },
        [](Tensor a, Tensor, Tensor) {
            average_pool2d(a, {.window = {9, 9}, .stride = {1, 1}});
        },
        [](Tensor a, Tensor, Tensor) {
            average_pool2d(a, {.window = {most, 1}, .stride = {1, 1}});
        },
        [](Tensor a, Tensor, Tensor) {
            adaptive_average_pool2d(a, {0, -1});
        },
        [](Tensor a, Tensor b, Tensor) { cross_entropy(a, b); },
        [](Tensor a, Tensor b, Tensor c) { counted_cross_entropy(a, b, c); },
        [](Tensor a, Tensor b, Tensor c) { dropout(a, {.seed = b, .step = c}, -1.0, 0); },
        [](Tensor a, Tensor b, Tensor) {
            random_uniform(a, b, 0, {-1, 2});
        },
    };
}

/// Every function of tensor.h that models call with every combination of operands that few of them take.
TEST(Refusals, NoOperandsEndInAnInternalError) {
    Graph graph;
    const std::vector<Tensor> all = {{},
                                     input_of(graph, {}),
                                     input_of(graph, {0}),
                                     input_of(graph, {3}),
                                     input_of(graph, {2, 3}),
                                     input_of(graph, {2, 3}, DType::i32),
                                     input_of(graph, {2, 3}, DType::boolean),
                                     input_of(graph, {2, 4, 4, 3}, DType::bf16),
                                     input_of(graph, {}, DType::i64)};
    std::vector<Function> functions = elements_and_movement();
    for (const Function& function : contractions_and_networks()) functions.push_back(function);
    for (std::size_t f = 0; f < functions.size(); ++f)
        for (std::size_t i = 0; i < all.size() * all.size() * all.size(); ++i) {
            const Tensor a = all[i % all.size()], b = all[i / all.size() % all.size()];
            const Tensor c = all[i / all.size() / all.size()];
            try {
                functions[f](a, b, c);
            } catch (const UserError& error) {
                ASSERT_NE(std::string(error.what()).find("refusals_test.cpp:"), std::string::npos)
                    << "function " << f << ", operands " << i << ": " << error.what();
            } catch (const std::exception& error) {
                ADD_FAILURE() << "function " << f << ", operands " << i << ": " << error.what();
                break;
            }
        }
}

}  // namespace
}  // namespace mantissa
