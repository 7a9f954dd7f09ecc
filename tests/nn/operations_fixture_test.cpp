// Operations made of others, and recurrent layers, against what PyTorch computed in FP64: values and
// gradients (bench/peers/operations_fixture.py).
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "mantissa/nn/layers.h"
#include "tests/support/recording.h"
#include "tests/support/torch_fixture.h"

namespace mantissa {
namespace {

using testing::Numbers;
using testing::Recording;

using In = const std::vector<Tensor>&;

struct FixtureCase {
    std::string name;
    std::vector<Shape> shapes;
    std::function<Tensor(In)> build;
    std::size_t ids = 99;  ///< the operand of i32
};

const Shape image{2, 4, 5, 3}, grid{2, 3, 4, 2};

std::vector<FixtureCase> image_cases() {
    const auto resized = [](std::int64_t rows, std::int64_t columns, ResizeOptions options) {
        return [=](In x) { return resize(x[0], {rows, columns}, options); };
    };
    std::vector<FixtureCase> cases = {
        {"resize_more", {image}, resized(7, 9, {})},
        {"resize_fewer", {image}, resized(3, 2, {})},
        {"resize_corners", {image}, resized(7, 9, {.align_corners = true})},
        {"resize_nearest", {image}, resized(7, 9, {.sampling = Sampling::nearest})}};
    for (const Sampling sampling : {Sampling::bilinear, Sampling::nearest})
        for (const Outside outside : {Outside::zeros, Outside::border})
            for (const bool corners : {false, true})
                cases.push_back({std::string("grid_") +
                                     (sampling == Sampling::bilinear ? "bilinear" : "nearest") +
                                     (outside == Outside::zeros ? "_zeros" : "_border") +
                                     (corners ? "_corners" : "_edges"),
                                 {image, grid},
                                 [=](In x) {
                                     return grid_sample(x[0], x[1], {sampling, outside, corners});
                                 }});
    cases.push_back({"conv1d", {{2, 11, 6}, {4, 2, 9}, {9}}, [](In x) {
                         return conv1d(
                             x[0], x[1],
                             {.stride = 2, .dilation = 2, .groups = 3, .padding = {3, 3}, .bias = x[2]});
                     }});
    cases.push_back(
        {"conv_transpose2d", {{2, 4, 5, 6}, {3, 2, 2, 6}, {4}}, [](In x) {
             return conv_transpose2d(
                 x[0], x[1],
                 {.stride = {2, 3}, .padding = {1, 1, 0, 0}, .dilation = {1, 2}, .groups = 2, .bias = x[2]},
                 {1, 2});
         }});
    const Pool2dOptions pool{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}, .ceil_mode = true};
    cases.push_back({"max_pool_ceil", {{2, 6, 8, 3}}, [=](In x) { return max_pool2d(x[0], pool); }});
    cases.push_back({"average_pool_ceil", {{2, 6, 8, 3}}, [=](In x) { return average_pool2d(x[0], pool); }});
    cases.push_back({"average_pool_ceil_padding", {{2, 8, 5, 3}}, [](In x) {
                         return average_pool2d(x[0], {.window = {3, 2},
                                                      .stride = {4, 3},
                                                      .padding = {1, 1, 1, 1},
                                                      .count_padding = true,
                                                      .ceil_mode = true});
                     }});
    return cases;
}

std::vector<FixtureCase> volume_cases() {
    const Shape volume{2, 6, 5, 7, 3};
    Pool3dOptions pool{
        .window = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1, 1, 1, 1}, .ceil_mode = true};
    Pool3dOptions counting = pool;
    counting.window = {3, 2, 3};
    counting.count_padding = true;
    return {{"conv3d",
             {{2, 6, 4, 7, 6}, {3, 2, 3, 3, 4}, {4}},
             [](In x) {
                 return conv3d(x[0], x[1],
                               {.stride = {2, 1, 2},
                                .dilation = {3, 1, 2},
                                .padding = {2, 2, 0, 0, 1, 1},
                                .groups = 2,
                                .bias = x[2]});
             }},
            {"conv3d_beyond",  // one plane of the output meets zeros alone
             {{2, 2, 2, 3, 2}, {2, 1, 2, 2, 3}},
             [](In x) {
                 return conv3d(x[0], x[1], {.dilation = {3, 1, 1}, .padding = {2, 2, 0, 0, 0, 0}});
             }},
            {"conv_transpose3d",
             {{2, 3, 4, 3, 6}, {3, 2, 2, 2, 6}, {4}},
             [](In x) {
                 return conv_transpose3d(x[0], x[1],
                                         {.stride = {2, 1, 2},
                                          .dilation = {2, 1, 1},
                                          .padding = {1, 1, 0, 0, 1, 1},
                                          .groups = 2,
                                          .bias = x[2]},
                                         {1, 0, 0});
             }},
            {"max_pool3d", {volume}, [=](In x) { return max_pool3d(x[0], pool); }},
            {"average_pool3d", {volume}, [=](In x) { return average_pool3d(x[0], pool); }},
            {"average_pool3d_padding", {volume}, [=](In x) { return average_pool3d(x[0], counting); }},
            {"adaptive_average_pool3d", {volume}, [](In x) {
                 return adaptive_average_pool3d(x[0], {4, 3, 2});
             }}};
}

std::vector<FixtureCase> other_cases() {
    std::vector<FixtureCase> cases;
    for (const auto& [bag, name] :
         {std::pair(Bag::sum, "bag_sum"), std::pair(Bag::mean, "bag_mean"), std::pair(Bag::max, "bag_max")})
        for (const bool ignoring : {false, true})
            cases.push_back({std::string(name) + (ignoring ? "_ignoring" : ""),
                             {{7, 5}, {6, 3}},
                             [bag = bag, ignoring](In x) {
                                 BagOptions options{.bag = bag};
                                 if (ignoring) options.ignore_id = 2;
                                 return embedding_bag(x[0], x[1], options);
                             },
                             1});
    const AttentionOptions causal{.causal = true, .corner = AttentionCorner::first};
    const auto attends = [=](In x) { return attention(x[0], x[1], x[2], causal); };
    cases.push_back({"attention_more_keys", {{2, 3, 4, 4}, {2, 3, 7, 4}, {2, 3, 7, 4}}, attends});
    cases.push_back({"attention_fewer_keys", {{2, 3, 7, 4}, {2, 3, 4, 4}, {2, 3, 4, 6}}, attends});
    cases.push_back(
        {"group_norm", {{2, 3, 5, 6}, {6}, {6}}, [](In x) { return group_norm(x[0], 2, x[1], x[2]); }});
    cases.push_back(
        {"instance_norm", {{2, 3, 5, 6}, {6}, {6}}, [](In x) { return instance_norm(x[0], x[1], x[2]); }});
    cases.push_back({"weight_norm", {{4, 3, 5}, {3}}, [](In x) { return weight_norm(x[0], x[1], 1); }});
    cases.push_back({"sort", {{4, 9}}, [](In x) { return sort(x[0], 1, Order::descending).values; }});
    cases.push_back({"top_k", {{9, 4}}, [](In x) { return top_k(x[0], 3, 0).values; }});
    cases.push_back({"soft_cross_entropy", {{6, 11}, {6, 11}, {11}}, [](In x) {
                         return cross_entropy(x[0], softmax(x[1]),
                                              {.class_weights = abs(x[2]), .label_smoothing = 0.1});
                     }});
    return cases;
}

/// Relative to the largest of them.
void expect_relatively_near(const Numbers& got, const Numbers& expected, double tolerance) {
    double largest = 1e-3;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    testing::expect_near(got, expected, tolerance * largest);
}

TEST(OperationsFixture, ValuesAndGradientsArePyTorchs) {
    const TorchFixture fixture("operations");
    std::vector<FixtureCase> cases = image_cases();
    for (const auto& more : {volume_cases(), other_cases()})
        cases.insert(cases.end(), more.begin(), more.end());
    for (const FixtureCase& test : cases) {
        SCOPED_TRACE(test.name);
        Recording r;
        std::vector<Tensor> inputs;
        for (std::size_t i = 0; i < test.shapes.size(); ++i) {
            const std::string name = test.name + ".x" + std::to_string(i);
            if (i == test.ids) {
                const auto ids = fixture.values<std::int32_t>(name);
                inputs.push_back(r.given(test.shapes[i], {ids.begin(), ids.end()}, DType::i32));
            } else {
                inputs.push_back(r.given(test.shapes[i], fixture.f32(name)));
            }
        }
        const Tensor y = test.build(inputs);
        // Places and shares of images are FP32 numbers, as constants are.
        expect_relatively_near(r.values(y), fixture.values<double>(test.name + ".y"), 1e-6);
        const Tensor weighted = y * r.given(y.shape(), fixture.f32(test.name + ".w"));
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            // Class weights get no gradient here.
            if (i == test.ids || (test.name == "soft_cross_entropy" && i == 2)) continue;
            expect_relatively_near(r.gradient(weighted, inputs[i]),
                                   fixture.values<double>(test.name + ".d" + std::to_string(i)), 1e-5);
        }
    }
}

TEST(OperationsFixture, RecurrentLayersArePyTorchs) {
    const TorchFixture fixture("operations");
    for (const bool gated : {false, true}) {
        const std::string name = gated ? "gru" : "lstm";
        SCOPED_TRACE(name);
        Recording r;
        const Tensor x = r.given({3, 9, 5}, fixture.f32(name + ".x0"));
        const nn::RecurrentOptions options{.hidden = 8, .layers = 2};
        const Tensor y = gated ? nn::gru(x, "rnn", options) : nn::lstm(x, "rnn", options);
        std::vector<Tensor> inputs{x};
        for (std::size_t i = 0; i < r.graph.states().size(); ++i) {
            const State& state = r.graph.states()[i];
            r.feed[state.name] = fixture.f32(name + ".x" + std::to_string(i + 1));
            inputs.emplace_back(r.graph, Value{state.node, 0});
        }
        ASSERT_EQ(inputs.size(), 9u);
        expect_relatively_near(r.values(y), fixture.values<double>(name + ".y"), 1e-12);
        const Tensor weighted = y * r.given(y.shape(), fixture.f32(name + ".w"));
        for (std::size_t i = 0; i < inputs.size(); ++i)
            expect_relatively_near(r.gradient(weighted, inputs[i]),
                                   fixture.values<double>(name + ".d" + std::to_string(i)), 1e-12);
    }
}

}  // namespace
}  // namespace mantissa
