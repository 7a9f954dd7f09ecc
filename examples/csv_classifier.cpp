// A classifier on a CSV file, judged on rows that it has not seen: FILE, or examples/points.csv. The last
// column is the class, the first line names the columns.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "mantissa/mantissa.h"

using namespace mantissa;

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
        .inputs = {{"x", DType::f32, {columns}}, {"class", DType::i32, {}}},
        .loss = [](Graph&, auto in, const nn::Mode&) { return cross_entropy(logits(in[0]), in[1]); },
        .output = {.trace = [](Graph&, auto in, const nn::Mode&) { return logits(in[0]); }}};
    const Examples rows(model, {x, y}, {.batch = 32, .order = BatchOrder::random});
    BatchBuffer buffer(model, 32);
    Trainer trainer(cpu(), model, {.batch = 32});
    for (std::uint64_t step = 0; step < 300; ++step) trainer.step(buffer.fill(rows, step), 0.01);
    const std::vector<float> scores = Predictor(trainer).predict({held_x});
    std::size_t right = 0;
    for (std::size_t i = 0; i < held_y.size(); ++i) {
        const auto first = scores.begin() + static_cast<std::ptrdiff_t>(i) * classes;
        right += std::max_element(first, first + classes) - first == held_y[i];
    }
    std::printf("%zu of %zu rows that were held out are right\n", right, held_y.size());
    return 100 * right >= 90 * held_y.size() ? 0 : 1;
}
