// Reports of a network of one's own on arrays from numpy.save(): the formats of each operation, as a page,
// and the speed of the precision rungs.
#include <cstdio>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;

int main() {
    const mantissa::NpyFile x(EXAMPLES "/waves.npy"), y(EXAMPLES "/wave_classes.npy");
    const auto loss = [](mantissa::Tensor wave, mantissa::Tensor id) {
        const auto hidden = gelu(nn::linear(wave, "hidden", {.outputs = 1024}));
        return cross_entropy(nn::linear(hidden, "classes", {.outputs = 4}), id);
    };
    const nn::Model model{.name = "waves", .inputs = {x.input("wave"), y.input("class")}, .loss = loss};
    const mantissa::report::Options options{.trainer = {.batch = 64, .policy = "bf16"}};
    mantissa::report::explain(mantissa::cpu(), model, options).write_page("explained.html");
    const mantissa::Examples rows(model, {x, y}, options.trainer.batches());
    std::printf("%s", mantissa::report::ladder(mantissa::cpu(), model, rows, options).text.c_str());
}
