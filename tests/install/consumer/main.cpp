// Fits a line with the installed library and prints its slope.
#include <cstdio>
#include <vector>

#include "mantissa/engine.h"
#include "mantissa/mantissa.h"
#include "mantissa/runtime/state_block.h"

int main() {
    using namespace mantissa;
    const nn::Model model{.name = "line",
                          .inputs = {{"x", DType::f32, {1}}, {"y", DType::f32, {1}}},
                          .loss = [](Tensor in, Tensor target) {
                              return nn::mse_loss(nn::linear(in, "line", {.outputs = 1}), target);
                          }};
    const std::vector<float> x{-1, 0, 1, 2}, y{-3, 0, 3, 6};
    Trainer trainer(cpu(), model, {.optimizer = sgd({.momentum = 0.9}), .batch = 4});
    const Examples rows(model, {x, y}, {.batch = 4});  // a class with a table of virtual functions
    BatchBuffer buffer(model, 4);
    for (std::uint64_t step = 0; step < 300; ++step) trainer.step(buffer.fill(rows, step), 0.02);
    std::printf("slope=%.3f\n", static_cast<double>(trainer.state().read_f32("line.weight")[0]));
    try {
        trainer.step({x}, 0.02);
    } catch (const UserError& error) {  // which crosses the border of the library
        std::printf("refused: %s\n", error.what());
    }
}
