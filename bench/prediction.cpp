// Prediction of one row, and the start from a file of weights, for two networks of 1 M parameters: fully
// connected layers, few and wide, or many and narrow. With BENCH_IMAGES 1, prediction of one image of 224 x
// 224 pixels in FP32 and BF16 by the image networks. Prints, as JSON for bench/peers/prediction.py, the
// median microseconds of a row, and the milliseconds from the file to the first row's output.
//
//   bench_prediction
//
// BENCH_CALLS (2000) rows; BENCH_STARTS (9); BENCH_THREADS (all).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/nn/image_model.h"
#include "mantissa/nn/layers.h"
#include "mantissa/train/predictor.h"
#include "mantissa/train/trainer.h"

namespace mantissa {
namespace {

/// Numbers between the layers, from the row to the classes.
using Widths = std::vector<std::int64_t>;
const std::pair<const char*, Widths> networks[] = {{"wide", {512, 1024, 512, 10}},
                                                   {"narrow", Widths(17, 256)}};

nn::Model network(const Widths& widths) {
    const auto logits = [widths](Graph&, std::span<const Tensor> in, const nn::Mode&) {
        Tensor x = in[0];
        for (std::size_t i = 1; i < widths.size(); ++i)
            x = nn::linear(i > 1 ? relu(x) : x, fmt::format("layer{}", i), {.outputs = widths[i]});
        return x;
    };
    return {.name = "layers",
            .inputs = {{"x", DType::f32, {widths.front()}}, {"class", DType::i32}},
            .loss = [logits](Graph& graph, std::span<const Tensor> in,
                             const nn::Mode& mode) { return cross_entropy(logits(graph, in, mode), in[1]); },
            .output = {.trace = logits}};
}

/// Seconds from the file to the output of one row.
double start(Device& device, const nn::Model& model, const std::filesystem::path& weights,
             const std::vector<float>& row, const Policy& policy) {
    const Stopwatch watch;
    Predictor predictor(device, model, weights, {.policy = policy});
    predictor.predict({row});
    return watch.seconds();
}

std::string measure(Device& device, const std::string& name, const nn::Model& model,
                    const Policy& policy = {}) {
    const std::filesystem::path weights =
        std::filesystem::temp_directory_path() / fmt::format("prediction-{}.safetensors", getpid());
    Trainer trainer(device, model, {.batch = 2, .policy = policy});
    trainer.save_weights(weights);
    const std::vector<float> row(static_cast<std::size_t>(model.inputs[0].shape.elements()), 0.5f);
    std::vector<double> starts, rows;
    for (int i = 0; i < on_cpu::option("BENCH_STARTS", 9); ++i)
        starts.push_back(1e3 * start(device, model, weights, row, policy));
    Predictor predictor(device, model, weights, {.policy = policy});
    std::filesystem::remove(weights);
    for (int i = 0; i < on_cpu::option("BENCH_CALLS", 2000); ++i) {
        const Stopwatch watch;
        predictor.predict({row});
        rows.push_back(1e6 * watch.seconds());
    }
    return fmt::format("\"{}\": {{\"us_a_row\": {:.2f}, \"first_start_ms\": {:.2f}, \"start_ms\": {:.2f}}}",
                       name, on_cpu::median(rows), starts.front(), on_cpu::median(starts));
}

int run() {
    const auto device = make_cpu_device({.threads = on_cpu::option("BENCH_THREADS", 0)});
    std::vector<std::string> measured;
    if (on_cpu::option("BENCH_IMAGES", 0) == 0)
        for (const auto& [name, widths] : networks)
            measured.push_back(measure(*device, name, network(widths)));
    else
        for (const char* const name : {"ResNet50v1.5", "VGG19", "DenseNet121"})
            for (const char* const policy : {"fp32", "bf16"})
                measured.push_back(measure(*device, fmt::format("{} {}", name, policy),
                                           nn::image_model(name).model, find_policy(policy)));
    fmt::print("{{{}}}\n", fmt::join(measured, ", "));
    return 0;
}

}  // namespace
}  // namespace mantissa

int main() { return mantissa::run(); }
