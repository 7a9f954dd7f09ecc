// Reports of a network of one's own: what each operation computes in, and how fast the rungs of precision
// are, printed, and the first as a page.
#include <cstdio>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

int main() {
    const nn::Model model{.name = "wide",
                          .inputs = {{"x", mantissa::DType::f32, {256}}, {"y", mantissa::DType::f32, {16}}},
                          .loss = [](Tensor x, Tensor y) {
                              const Tensor hidden = gelu(nn::linear(x, "hidden", {.outputs = 1024}));
                              return nn::mse_loss(nn::linear(hidden, "output", {.outputs = 16}), y);
                          }};
    const std::vector<float> x(512 * 256, 0.5f), y(512 * 16, 1.0f);
    const mantissa::Examples rows(model, {x, y}, {.batch = 64});
    const auto explained = mantissa::report::explain(mantissa::cpu(), model, {.trainer = {.policy = "bf16"}});
    std::printf("%s\n", explained.text.c_str());
    explained.write_page("explained.html");
    const auto ladder = mantissa::report::ladder(mantissa::cpu(), model, rows, {.trainer = {.batch = 64}});
    std::printf("%s", ladder.text.c_str());
}
