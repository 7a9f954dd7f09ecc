// A loop of one's own on y = sin(3 x): each step stops at its gradients, which decide how it goes on. Batches
// and precision change on the way, and the average of the weights is what is judged.
#include <cmath>
#include <cstdio>
#include <vector>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

Tensor loss(Tensor x, Tensor y) {
    const Tensor hidden = tanh(nn::linear(x, "hidden", {.outputs = 32, .standard_deviation = 1}));
    return nn::mse_loss(nn::linear(hidden, "output", {.outputs = 1}), y);
}

int main() {
    const nn::Model model{.name = "curve",
                          .inputs = {{"x", mantissa::DType::f32, {1}}, {"y", mantissa::DType::f32, {1}}},
                          .loss = loss};
    mantissa::TrainerOptions options{
        .optimizer = mantissa::adamw({.weight_decay = 0}), .batch = 32, .ema_decay = 0.95};
    mantissa::Trainer trainer(mantissa::cpu(), model, options);
    std::vector<float> x(32), y(32);
    for (int step = 0; step < 600; ++step) {
        const float width = step < 200 ? 0.5f : 1.0f;  // easy ones first
        for (std::size_t i = 0; i < x.size(); ++i) {
            x[i] = width * std::sin(static_cast<float>(32 * step) + static_cast<float>(i));
            y[i] = std::sin(3 * x[i]);
        }
        if (step == 400) {  // from here on in BF16, on the same states
            options.policy = "bf16";
            trainer.change(options);
        }
        const mantissa::Gradients& gradients = trainer.gradients({x, y});
        const double norm = gradients.norm();
        if (step % 100 == 0)
            std::printf("step %3d  loss %.5f  norm of the gradients %.4f, of output.bias %+.4f\n", step,
                        static_cast<double>(gradients.loss()), norm,
                        static_cast<double>(gradients.read("output.bias")[0]));
        if (norm < 10) trainer.update(norm > 1 ? 0.005 : 0.02);  // else the step is left out
    }
    const mantissa::AveragedWeights averaged(trainer);
    const auto judged = static_cast<double>(trainer.evaluate({x, y}).loss);
    std::printf("with the averaged weights: loss %.5f\n", judged);
    return judged < 0.01 ? 0 : 1;
}
