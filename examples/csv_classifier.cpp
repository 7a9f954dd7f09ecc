// A classifier of the column "class" of a CSV file, FILE or examples/points.csv, judged on rows held out.
#include <cstdio>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;

int main(int count, char** arguments) try {
    mantissa::CsvTable rows(count > 1 ? arguments[1] : EXAMPLES "/points.csv");
    const auto held_out = rows.hold_out(0.2);
    const auto columns = rows.columns_but("class");
    const auto classes = rows.classes("class");
    const auto loss = [&](mantissa::Tensor x, mantissa::Tensor id) {
        const auto hidden = tanh(nn::linear(x, "hidden", {.outputs = 32, .standard_deviation = 0.5}));
        const auto scores = nn::linear(hidden, "classes", {.outputs = std::ssize(classes.labels)});
        nn::metric("accuracy", equal(argmax(scores, 1), id));
        return cross_entropy(scores, id);
    };
    const std::vector inputs{nn::numbers("x", {std::ssize(columns)}), nn::ids("class")};
    mantissa::Trainer trainer(mantissa::cpu(), {.name = "points", .inputs = inputs, .loss = loss},
                              {.batch = 32});
    const auto examples = trainer.examples({rows.numbers(columns), classes.ids});
    for (int step = 0; step < 300; ++step) trainer.step(examples, 0.01);
    const auto judged = trainer.evaluate({held_out.numbers(columns), held_out.classes("class").ids});
    std::printf("%.1f %% of the rows held out are right\n", 100 * judged.metrics["accuracy"]);
    return judged.metrics["accuracy"] >= 0.9 ? 0 : 1;
} catch (const mantissa::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
