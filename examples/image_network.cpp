// A residual network of one's own on a folder of images, FOLDER/CLASS/, or examples/shapes; judged on unseen
// images.
#include <array>
#include <cstdio>
#include <string>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

constexpr std::int64_t size = 32;

Tensor convolution(Tensor x, std::string name, std::int64_t outputs, int stride, const nn::Mode& mode) {
    const std::array<std::int64_t, 2> steps{stride, stride};
    x = nn::conv2d(x, name, {.outputs = outputs, .stride = steps, .padding = 1, .bias = false});
    return nn::batch_norm(x, name + "_norm", mode);
}

/// x plus two convolutions of it; the first, and then x, too, may halve the image and widen the channels.
Tensor block(Tensor x, const char* name, std::int64_t outputs, int stride, const nn::Mode& mode) {
    const nn::Scope scope(x, name);
    const Tensor straight = outputs == x.dim(3) ? x : convolution(x, "straight", outputs, stride, mode);
    const Tensor y = relu(convolution(x, "first", outputs, stride, mode));
    return relu(straight + convolution(y, "second", outputs, 1, mode));
}

int main(int count, char** arguments) try {
    const mantissa::TrainerOptions options{.batch = 16, .policy = "bf16"};
    const mantissa::Images images(count > 1 ? arguments[1] : EXAMPLES "/shapes",
                                  {.image = size, .batches = options.batches()});
    const auto logits = [&](Tensor x, const nn::Mode& mode) {
        x = relu(convolution(x, "stem", 16, 1, mode));
        x = block(x, "block1", 16, 1, mode);
        x = block(x, "block2", 32, 2, mode);
        return nn::linear(mean(x, {1, 2}), "classes", {.outputs = std::ssize(images.classes())});
    };
    const nn::Model model{
        .name = "residual",
        .inputs = {nn::numbers("pixels", {size, size, 3}), nn::ids("class")},
        .loss = [&](auto in, const nn::Mode& mode) { return cross_entropy(logits(in[0], mode), in[1]); },
        .output = {.trace = [&](auto in, const nn::Mode& mode) { return logits(in[0], mode); }}};
    mantissa::Trainer trainer(mantissa::cpu(), model, options);
    for (int step = 0; step < 300; ++step) trainer.step(images.training(), 0.002);
    const auto held_out = images.held_out();
    const auto scores = mantissa::Predictor(trainer).predict({held_out.pixels});
    const double right = mantissa::accuracy(scores, held_out.classes);
    std::printf("%.0f %% of %zu images held out are right\n", 100 * right, held_out.classes.size());
    return right >= 0.8 ? 0 : 1;
} catch (const mantissa::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
