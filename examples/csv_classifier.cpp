// A classifier on a CSV file, judged on rows that it has not seen: FILE, or examples/points.csv. The column
// "class" is what it learns to tell from all others.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

int main(int count, char** arguments) try {
    mantissa::CsvTable rows(count > 1 ? arguments[1] : EXAMPLES "/points.csv");
    const mantissa::CsvTable held_out = rows.hold_out(0.2);
    const std::vector<std::string> columns = rows.columns_but("class");
    const mantissa::CsvClasses classes = rows.classes("class");
    const nn::Model model{
        .name = "points",
        .inputs = {{"x", mantissa::DType::f32, {std::ssize(columns)}}, {"class", mantissa::DType::i32}},
        .loss = [=](Tensor x, Tensor id) {
            const Tensor hidden = tanh(nn::linear(x, "hidden", {.outputs = 32, .standard_deviation = 0.5}));
            const Tensor scores = nn::linear(hidden, "classes", {.outputs = std::ssize(classes.labels)});
            nn::metric("accuracy", equal(argmax(scores, 1), id));
            return cross_entropy(scores, id);
        }};
    const mantissa::Examples examples(model, {rows.numbers(columns), classes.ids},
                                      {.batch = 32, .order = mantissa::BatchOrder::random});
    mantissa::Trainer trainer(mantissa::cpu(), model, {.batch = 32});
    for (int step = 0; step < 300; ++step) trainer.step(examples, 0.01);
    const auto judged = trainer.evaluate({held_out.numbers(columns), held_out.classes("class").ids});
    const double right = judged.metrics["accuracy"];
    std::printf("%.1f %% of the rows that were held out are right\n", 100 * right);
    return right >= 0.9 ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
