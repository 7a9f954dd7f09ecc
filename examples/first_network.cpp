// A first network: 800 rows of four numbers, and its predictions after training on them.
#include <cmath>
#include <cstdio>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;

int main() {
    std::vector<float> x(800 * 4), y(800);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[4 * i] * x[4 * i + 1] + x[4 * i + 2];
    const auto loss = [](mantissa::Tensor rows, mantissa::Tensor target) {
        const auto hidden = tanh(nn::linear(rows, "hidden", {.outputs = 32, .standard_deviation = 0.5}));
        return nn::mse_loss(nn::linear(hidden, "output", {.outputs = 1}), target);
    };
    const std::vector inputs{nn::numbers("x", {4}), nn::numbers("y", {1})};
    mantissa::Trainer trainer(mantissa::cpu(), {.name = "first", .inputs = inputs, .loss = loss},
                              {.batch = 32});
    const mantissa::Examples rows = trainer.examples({x, y});
    for (int step = 0; step < 500; ++step) trainer.step(rows, 0.01);
    std::printf("mean squared error over all rows: %.4f\n", trainer.evaluate({x, y}).loss);
}
