// A loop of one's own on y = sin(3 x): each step stops at its gradients, which decide about its update.
// Batches and precision change on the way, and the averaged weights are judged.
#include <cmath>
#include <cstdio>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;

mantissa::Tensor loss(mantissa::Tensor x, mantissa::Tensor y) {
    const auto hidden = tanh(nn::linear(x, "hidden", {.outputs = 32, .standard_deviation = 1}));
    return nn::mse_loss(nn::linear(hidden, "output", {.outputs = 1}), y);
}

int main() {
    const std::vector inputs{nn::numbers("x", {1}), nn::numbers("y", {1})};
    mantissa::TrainerOptions options{.batch = 32, .ema_decay = 0.95};
    mantissa::Trainer trainer(mantissa::cpu(), {.name = "curve", .inputs = inputs, .loss = loss}, options);
    std::vector<float> x(32), y(32);
    for (int step = 0; step < 600; ++step) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            // Easy inputs first.
            x[i] = (step < 200 ? 0.5f : 1.0f) * std::sin(static_cast<float>(i + 32 * step));
            y[i] = std::sin(3 * x[i]);
        }
        if (step == 400) {  // BF16 from here on, with the same states
            options.policy = "bf16";
            trainer.change(options);
        }
        const mantissa::Gradients& gradients = trainer.gradients({x, y});
        const double norm = gradients.norm(), of_bias = gradients.read("output.bias")[0];
        if (step % 100 == 0)
            std::printf("step %3d  norm of the gradients %.4f, of output.bias %+.4f\n", step, norm, of_bias);
        if (norm < 10) trainer.update(norm > 1 ? 0.005 : 0.02);  // else the step is skipped
    }
    const mantissa::AveragedWeights averaged(trainer);
    const float judged = trainer.evaluate({x, y}).loss;
    std::printf("with the averaged weights: loss %.5f\n", judged);
    return judged < 0.01 ? 0 : 1;
}
