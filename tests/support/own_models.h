// Networks other than GPT-2, as a user would define them: an MLP with dropout on float images, and a network
// with a sum of two losses.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/layers.h"

namespace mantissa {

/// Images f32 [8, 8] and their class, one of ten.
inline nn::Model image_mlp(double dropout = 0.1) {
    return {.name = "mlp",
            .unit = "images",
            .inputs = {{"pictures", DType::f32, {8, 8}}, {"classes", DType::i32, {}}},
            .loss =
                [dropout](Graph&, std::span<const Tensor> inputs, const nn::Mode& mode) {
                    const Tensor x = reshape(inputs[0], {-1, 64});
                    const Tensor hidden = gelu(nn::linear(x, "hidden", {.outputs = 96}));
                    return cross_entropy(
                        nn::linear(nn::dropout(hidden, dropout, mode), "classes", {.outputs = 10}),
                        inputs[1]);
                },
            .configuration = {{"hidden", std::int64_t{96}}, {"dropout", dropout}}};
}

/// Points f32 [16] with a class, one of five, and two numbers derived from them.
inline nn::Model two_losses() {
    return {.name = "two",
            .inputs = {{"x", DType::f32, {16}}, {"classes", DType::i32, {}}, {"values", DType::f32, {2}}},
            .loss =
                [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
                    const Tensor shared = tanh(nn::linear(inputs[0], "shared", {.outputs = 32}));
                    const Tensor classes = nn::linear(shared, "classes", {.outputs = 5});
                    const Tensor error = nn::linear(shared, "values", {.outputs = 2}) - inputs[2];
                    return cross_entropy(classes, inputs[1]) + mean(error * error, {0, 1}) * 0.5;
                },
            .configuration = {{"hidden", std::int64_t{32}}}};
}

/// `count` images with a visible class: one brighter row or column.
struct Images {
    std::vector<float> pixels;          // [count, 8, 8]
    std::vector<std::int32_t> classes;  // [count]

    explicit Images(int count) {
        for (int i = 0; i < count; ++i) {
            const int bright = i * 7 % 10;
            classes.push_back(bright);
            for (int pixel = 0; pixel < 64; ++pixel) {
                const float noise = 0.2f * std::sin(static_cast<float>(i * 64 + pixel));
                const bool inside = bright < 8 ? pixel / 8 == bright : pixel % 8 == bright - 8;
                pixels.push_back(noise + (inside ? 1.0f : 0.0f));
            }
        }
    }
};

/// `count` points, with a class and two values each.
struct Points {
    std::vector<float> x;               // [count, 16]
    std::vector<std::int32_t> classes;  // [count]
    std::vector<float> values;          // [count, 2]

    explicit Points(int count) {
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j < 16; ++j) x.push_back(std::cos(static_cast<float>(i * 16 + j) * 0.7f));
            const auto mine = x.end() - 16;  // the class is the index of the largest of the first five
            classes.push_back(static_cast<std::int32_t>(std::max_element(mine, mine + 5) - mine));
            for (int j = 0; j < 2; ++j) values.push_back(x[x.size() - 1 - static_cast<std::size_t>(j)]);
        }
    }
};

inline Examples batches_of_images(const nn::Model& model, const BatchOptions& options) {
    const Images images(96);
    return {model, {images.pixels, images.classes}, options};
}

inline Examples batches_of_points(const nn::Model& model, const BatchOptions& options) {
    const Points points(96);
    return {model, {points.x, points.classes, points.values}, options};
}

}  // namespace mantissa
