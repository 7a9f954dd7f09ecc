// Planning time of a graph with large tables, and of a graph with a loop; and the time of a step of recurrent
// networks.
//
// A LLaMA of 134 million parameters with its rotary tables as constants, in turns with this project's model.
// Then LSTM and GRU of two layers. BENCH_TURNS (5), BENCH_STEPS (512), BENCH_HIDDEN (512), BENCH_BATCH (16),
// BENCH_POLICY (fp32), BENCH_WITHOUT_PLANS.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/nn/layers.h"
#include "mantissa/nn/losses.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa {
namespace {

constexpr std::int64_t layers = 30, heads = 9, key_heads = 3, head = 64, channels = heads * head,
                       hidden = 1536, vocabulary = 49152, sequence = 512;

nn::DecoderConfig llama() {
    nn::DecoderConfig config = nn::decoder_config("llama-110m");
    config.name = "llama-134m";
    config.parts.layers = layers;
    config.parts.heads = heads;
    config.parts.key_heads = key_heads;
    config.parts.head_size = head;
    config.parts.channels = channels;
    config.parts.hidden = hidden;
    config.parts.vocabulary = vocabulary;
    config.parts.context = sequence;
    config.parts.tied = true;
    return config;
}

/// A function of the angle of each position and pair of a head's elements.
SharedData table(double (*of)(double)) {
    std::vector<double> values;
    for (std::int64_t t = 0; t < sequence; ++t)
        for (std::int64_t i = 0; i < head / 2; ++i) {
            const double pair = 2.0 * static_cast<double>(i) / static_cast<double>(head);
            values.push_back(of(static_cast<double>(t) * std::pow(10000.0, -pair)));
        }
    return {DType::f32, values};
}

class Exported {
  public:
    Exported() : cosine_(table(std::cos)), sine_(table(std::sin)) {}

    Tensor loss(Tensor tokens, Tensor targets) const {
        Graph& graph = tokens.graph();
        const Tensor weight = nn::parameter(graph, "embed", {vocabulary, channels},
                                            {.kind = Initializer::Kind::normal, .standard_deviation = 0.02});
        Tensor x = embedding(weight, tokens);
        for (std::int64_t i = 0; i < layers; ++i) {
            const nn::Scope scope(graph, fmt::format("layer{}", i));
            x = x + attend(nn::rms_norm(x, "norm1"));
            x = x + mlp(nn::rms_norm(x, "norm2"));
        }
        const Tensor rows = reshape(nn::rms_norm(x, "norm"), {-1, channels});
        return cross_entropy(matmul(rows, weight, {.transpose_b = true}), reshape(targets, {-1}));
    }

  private:
    static Tensor linear(Tensor x, const char* name, std::int64_t outputs) {
        return nn::linear(x, name, {.outputs = outputs, .bias = false});
    }

    /// x [B, T, H, D].
    Tensor turned(Tensor x) const {
        const auto constant_table = [&](const SharedData& of) {
            return literal(x.graph(), of, {sequence, head / 2});
        };
        return rotary(x, constant_table(cosine_), constant_table(sine_));
    }

    Tensor attend(Tensor x) const {
        const auto by_head = [&](const char* name, std::int64_t count) {
            return reshape(linear(x, name, count * head), {x.dim(0), sequence, count, head});
        };
        const auto head_major = [](Tensor of) { return transpose(of, {0, 2, 1, 3}); };
        const Tensor q = turned(by_head("q", heads)), k = turned(by_head("k", key_heads));
        const Tensor o =
            attention(head_major(q), head_major(k), head_major(by_head("v", key_heads)), {.causal = true});
        return linear(reshape(transpose(o, {0, 2, 1, 3}), x.shape()), "o", channels);
    }

    static Tensor mlp(Tensor x) {
        return linear(swish(linear(x, "gate", hidden)) * linear(x, "up", hidden), "down", channels);
    }

    SharedData cosine_, sine_;
};

double milliseconds_of_plan(Device& device, const nn::Model& model, const std::string& policy,
                            std::int64_t batch) {
    const Stopwatch watch;
    const TrainingPlan plan(device, model, {.batch = batch, .policy = find_policy(policy)});
    const double taken = watch.milliseconds();
    fmt::print("  {:12} {:8.1f} ms, {} launches, arena {:.1f} MB\n", model.name, taken,
               plan.step().nodes().size(), static_cast<double>(plan.memory().arena) / 1e6);
    return taken;
}

void compare_plans(Device& device, const std::string& policy) {
    const nn::Model native = nn::decoder_model(llama(), sequence);
    const Exported exported;
    const nn::Model with_tables{
        .name = "with tables",
        .inputs = {nn::ids("tokens", {sequence}), nn::ids("targets", {sequence})},
        .loss = [&](Tensor tokens, Tensor targets) { return exported.loss(tokens, targets); }};
    std::vector<double> of_native, of_tables;
    for (int turn = 0, turns = on_cpu::option("BENCH_TURNS", 5); turn < turns; ++turn) {
        of_native.push_back(milliseconds_of_plan(device, native, policy, 1));
        of_tables.push_back(milliseconds_of_plan(device, with_tables, policy, 1));
    }
    const double a = on_cpu::median(of_native), b = on_cpu::median(of_tables);
    fmt::print("plan of the model {:.1f} ms, with tables as constants {:.1f} ms, ratio {:.3f}\n", a, b,
               b / a);
}

template <Tensor (*layer)(Tensor, std::string_view, const nn::RecurrentOptions&, Where)>
void time_recurrent(Device& device, const char* name, const std::string& policy) {
    const std::int64_t T = on_cpu::option("BENCH_STEPS", 512), H = on_cpu::option("BENCH_HIDDEN", 512),
                       B = on_cpu::option("BENCH_BATCH", 16);
    const nn::Model model{.name = name,
                          .inputs = {nn::numbers("x", {T, H}), nn::numbers("y", {T, H})},
                          .loss = [=](Tensor x, Tensor y) {
                              const Tensor z = layer(x, "rnn", {.hidden = H, .layers = 2}, {});
                              return nn::mse_loss(z, y);
                          }};
    milliseconds_of_plan(device, model, policy, B);
    Trainer trainer(device, model, {.batch = B, .policy = policy});
    std::vector<float> x(static_cast<std::size_t>(B * T * H)), y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = std::sin(static_cast<float>(i % 9973));
        y[i] = 0.3f * std::cos(static_cast<float>(i % 7919));
    }
    std::vector<double> steps;
    for (int turn = 0, turns = on_cpu::option("BENCH_TURNS", 5); turn <= turns; ++turn) {
        const Stopwatch watch;
        trainer.step({x, y}, 1e-3);
        if (turn > 0) steps.push_back(watch.milliseconds());
    }
    fmt::print("{} of {} steps, 2 layers of {}, batch {}, {}: {:.1f} ms a step\n", name, T, H, B, policy,
               on_cpu::median(steps));
}

}  // namespace
}  // namespace mantissa

int main() {
    const char* const given = std::getenv("BENCH_POLICY");
    const std::string policy = given ? given : "fp32";
    const auto device = mantissa::make_cpu_device({.threads = mantissa::on_cpu::option("BENCH_THREADS", 0)});
    fmt::print("{}, {} threads, {}\n", device->target().isa, device->target().threads, policy);
    if (!std::getenv("BENCH_WITHOUT_PLANS")) mantissa::compare_plans(*device, policy);
    mantissa::time_recurrent<mantissa::nn::lstm>(*device, "lstm", policy);
    mantissa::time_recurrent<mantissa::nn::gru>(*device, "gru", policy);
}
