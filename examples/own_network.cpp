// A network of one's own on one's own data, with a checkpoint and predictions: a two-layer perceptron that
// learns XOR.
#include <cstdio>
#include <vector>

#include "mantissa/mantissa.h"

using namespace mantissa;

Tensor network(Tensor x) {
    const nn::LinearOptions wide{.outputs = 8, .standard_deviation = 1},
        one{.outputs = 1, .standard_deviation = 1};
    return nn::linear(tanh(nn::linear(x, "hidden", wide)), "output", one);
}

int main() {
    const nn::Model model{.name = "xor",
                          .inputs = {{"x", DType::f32, {2}}, {"y", DType::f32, {1}}},
                          .loss =
                              [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
                                  const Tensor error = network(inputs[0]) - inputs[1];
                                  return mean(error * error, {0, 1});
                              },
                          .output = {.trace = [](Graph&, std::span<const Tensor> inputs, const nn::Mode&) {
                              return network(inputs[0]);
                          }}};
    const std::vector<float> x{0, 0, 0, 1, 1, 0, 1, 1}, y{0, 1, 1, 0};
    Trainer trainer(cpu(), model, {.optimizer = adamw({.weight_decay = 0}), .batch = 4});
    for (int i = 0; i < 200; ++i) {
        const StepResult step = trainer.step({x, y}, 0.05);
        if (i % 50 == 0) std::printf("step %3d  loss %.6f\n", i, static_cast<double>(step.loss));
    }
    save_training("xor.ckpt", trainer);

    Trainer resumed(cpu(), model, {.optimizer = adamw({.weight_decay = 0}), .batch = 4});
    resume_training("xor.ckpt", resumed);
    const float loss = resumed.step({x, y}, 0.05).loss;
    std::printf("step %3d  loss %.6f, resumed from xor.ckpt\n", 200, static_cast<double>(loss));
    const std::vector<float> predicted = Predictor(resumed).predict({x});
    for (std::size_t i = 0; i < y.size(); ++i)
        std::printf("%.0f xor %.0f is %.2f\n", static_cast<double>(x[2 * i]),
                    static_cast<double>(x[2 * i + 1]), static_cast<double>(predicted[i]));
    return loss < 1e-3f ? 0 : 1;
}
