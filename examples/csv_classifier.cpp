// A classifier on a CSV file, judged on rows that it has not seen: FILE, or examples/points.csv. The last
// column is the class, the first line names the columns.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "mantissa/mantissa.h"

namespace nn = mantissa::nn;
using mantissa::Tensor;

constexpr std::int64_t columns = 4, classes = 3;

Tensor logits(Tensor x) {
    return nn::linear(tanh(nn::linear(x, "hidden", {.outputs = 32, .standard_deviation = 0.5})), "classes",
                      {.outputs = classes});
}

int main(int count, char** arguments) {
    std::vector<float> x, held_x;
    std::vector<std::int32_t> y, held_y;
    std::ifstream file(count > 1 ? arguments[1] : EXAMPLES "/points.csv");
    std::string line, cell;
    std::getline(file, line);  // names
    for (int row = 0; std::getline(file, line); ++row) {
        std::istringstream cells(line);
        for (int i = 0; i < columns && std::getline(cells, cell, ','); ++i)
            (row % 5 ? x : held_x).push_back(std::stof(cell));
        std::getline(cells, cell);
        (row % 5 ? y : held_y).push_back(std::stoi(cell));  // each fifth row is held out
    }
    const nn::Model model{
        .name = "points",
        .inputs = {{"x", mantissa::DType::f32, {columns}}, {"class", mantissa::DType::i32, {}}},
        .loss = [](Tensor of, Tensor target) { return cross_entropy(logits(of), target); },
        .output = {.trace = logits}};
    const mantissa::Examples rows(model, {x, y}, {.batch = 32, .order = mantissa::BatchOrder::random});
    mantissa::Trainer trainer(mantissa::cpu(), model, {.batch = 32});
    for (int step = 0; step < 300; ++step) trainer.step(rows, 0.01);
    const std::vector<float> scores = mantissa::Predictor(trainer).predict({held_x});
    std::size_t right = 0;
    for (std::size_t i = 0; i < held_y.size(); ++i) {
        const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i) * classes;
        right += std::max_element(first, first + classes) - first == held_y[i];
    }
    std::printf("%zu of %zu rows that were held out are right\n", right, held_y.size());
    return 100 * right >= 90 * held_y.size() ? 0 : 1;
}
