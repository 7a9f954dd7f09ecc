// A network of one's own on one's own data, with a checkpoint and predictions: a two-layer perceptron that
// learns XOR.
#include <cstdio>
#include <vector>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

Tensor network(Tensor x) {
    const Tensor hidden = tanh(nn::linear(x, "hidden", {.outputs = 8, .standard_deviation = 1}));
    return nn::linear(hidden, "output", {.outputs = 1, .standard_deviation = 1});
}

int main() {
    const nn::Model model{.name = "xor",
                          .inputs = {nn::numbers("x", {2}), nn::numbers("y", {1})},
                          .loss = [](Tensor x, Tensor y) { return nn::mse_loss(network(x), y); },
                          .output = {.trace = network}};
    const mantissa::TrainerOptions options{.optimizer = mantissa::adamw({.weight_decay = 0}), .batch = 4};
    const std::vector<float> x{0, 0, 0, 1, 1, 0, 1, 1}, y{0, 1, 1, 0};
    mantissa::Trainer trainer(mantissa::cpu(), model, options);
    for (int i = 0; i < 200; ++i) {
        const mantissa::StepResult step = trainer.step({x, y}, 0.05);
        if (i % 50 == 0) std::printf("step %3d  loss %.6f\n", i, static_cast<double>(step.loss));
    }
    trainer.save("xor.ckpt");

    mantissa::Trainer resumed(mantissa::cpu(), model, options);
    resumed.resume("xor.ckpt");
    const float loss = resumed.step({x, y}, 0.05).loss;
    std::printf("step 200  loss %.6f, resumed from xor.ckpt\n", static_cast<double>(loss));
    const std::vector<float> predicted = mantissa::Predictor(resumed).predict({x});
    for (std::size_t i = 0; i < y.size(); ++i)
        std::printf("%.0f xor %.0f is %.2f\n", static_cast<double>(x[2 * i]),
                    static_cast<double>(x[2 * i + 1]), static_cast<double>(predicted[i]));
    return loss < 1e-3f ? 0 : 1;
}
