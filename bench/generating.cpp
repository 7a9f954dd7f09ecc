// Memory speed in generating a token: bytes a token (multiplied weights, keys and values of the tokens so
// far) over a token's seconds, as a share of the rate at which the same threads read memory with a loop of
// loads. The two take turns, a token and 64 MB, since that rate varies from second to second on shared
// machines; medians count.
//
//   bench_generating
//
// BENCH_MODEL (gpt2-124m), with random weights; BENCH_POLICIES (fp32,bf16,int8,int4); BENCH_TOKENS (256);
// BENCH_TEXTS (1): texts at once, for which weights are read once; BENCH_PROMPT (0: none): tokens of a
// prompt, with its multiply-adds a second, printed beside the level's FP32 peak; BENCH_THREADS (all).
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/device/cpu/unit_rates.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"
#include "mantissa/train/token_generator.h"

namespace mantissa {
namespace {

using on_cpu::median;
using on_cpu::option;

std::string text_option(const char* name, const std::string& standard) {
    const char* const text = std::getenv(name);
    return text ? text : standard;
}

/// Memory that no cache holds.
class Reading {
  public:
    explicit Reading(ThreadPool& pool) : pool_(pool), memory_(std::size_t{512} << 20, "memory to read") {
        std::memset(memory_.data(), 1, memory_.size());
    }
    /// Seconds a byte, for the next part.
    double seconds() {
        constexpr std::size_t part = std::size_t{64} << 20;
        constexpr std::int64_t block = (256 << 10) / sizeof(float);
        next_ = (next_ + part) % memory_.size();
        const auto* const from = memory_.as<float>().data() + next_ / sizeof(float);
        const Stopwatch watch;
        pool_.for_each_block(part / sizeof(float) / block,
                             [&](std::int64_t index, int) { read_(from + index * block, block, 1); });
        return watch.seconds() / static_cast<double>(part);
    }

  private:
    ThreadPool& pool_;
    const on_cpu::ReadLoop read_ = on_cpu::format_units(on_cpu::chosen_isa()).read;
    Buffer memory_;
    std::size_t next_ = 0;
};

struct BytesOfToken {
    std::int64_t weights = 0;  ///< of all products with matrices
    double keys = 0;           ///< average over the texts, for all
};

BytesOfToken bytes_of(const Plan& plan, std::int64_t tokens, std::int64_t context) {
    BytesOfToken bytes;
    const Graph& graph = plan.graph();
    for (std::size_t i = 0; i < graph.size(); ++i) {
        const Node& node = graph.node(static_cast<NodeId>(i));
        if (node.op->name != "matmul" && node.op->name != "quantized_matmul") continue;
        for (std::size_t operand = 1; operand < node.inputs.size(); ++operand)
            bytes.weights += graph.type(node.inputs[operand]).bytes();
    }
    for (const State& state : graph.states())
        if (state.kind == State::Kind::cache)
            bytes.keys += static_cast<double>(state.type.bytes()) * 0.5 * static_cast<double>(tokens + 1) /
                          static_cast<double>(context);
    return bytes;
}

/// FLOPs of a prompt's products with matrices; only the last token has scores.
double flops_of_prompt(const Plan& plan, std::int64_t tokens, std::int64_t vocabulary) {
    double flops = 0;
    const Graph& graph = plan.graph();
    for (std::size_t i = 0; i < graph.size(); ++i) {
        const Node& node = graph.node(static_cast<NodeId>(i));
        if (node.op->name != "matmul" && node.op->name != "quantized_matmul") continue;
        const Shape& w = graph.type(node.inputs[1]).shape;
        flops += 2.0 * static_cast<double>(w.elements()) *
                 (w[0] == vocabulary ? 1.0 : static_cast<double>(tokens));
    }
    return flops;
}

/// The best of three, in FLOP/s of the model's products with matrices.
void measure_prompt(Device& device, const nn::LanguageModel& model, const std::string& name,
                    std::int64_t tokens, ThreadPool& pool) {
    TokenGenerator generator(device, model, tokens, find_policy(name));
    StateBlock parameters(device, generator.parameters());
    parameters.initialize(1);
    generator.allocate(parameters);
    const double flops = flops_of_prompt(generator.token_plan(), tokens, model.vocabulary);
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(tokens), 1);
    double best = 0, peak = 0;
    for (int turn = 0; turn < 3; ++turn) {
        peak = std::max(peak, on_cpu::measured_fma_peak(pool, on_cpu::chosen_isa()));
        const Stopwatch watch;
        generator.prompt(prompt);
        best = std::max(best, 1 / watch.seconds());
    }
    fmt::print("{:10} {:5} prompt of {}: {:.0f} ms, {:.1f} GFLOP/s, {:.1f} % of FP32's {:.1f}\n", model.name,
               name, tokens, 1e3 / best, best * flops / 1e9, 100 * best * flops / peak, peak / 1e9);
    std::fflush(stdout);
}

void measure(Device& device, const nn::LanguageModel& model, const std::string& name, ThreadPool& pool) {
    const std::int64_t tokens = option("BENCH_TOKENS", 256), texts = option("BENCH_TEXTS", 1);
    const std::int64_t one = 1;
    TokenGenerator generator(device, model, {&one, 1}, find_policy(name), texts);
    StateBlock parameters(device, generator.parameters());
    parameters.initialize(1);
    generator.allocate(parameters);
    Reading reading(pool);
    const BytesOfToken bytes = bytes_of(generator.token_plan(), tokens, model.context);
    std::vector<double> token_seconds, byte_seconds;
    std::vector<std::int32_t> last(static_cast<std::size_t>(texts), 1);
    for (std::int64_t text = 0; text < texts; ++text) generator.prompt({last.data(), 1}, text);
    for (std::int64_t i = 1; i < tokens; ++i) {
        const Stopwatch watch;
        const std::vector<float> scores = generator.next(last);
        const std::size_t V = scores.size() / last.size();
        for (std::size_t text = 0; text < last.size(); ++text)
            last[text] = sample(std::span(scores).subspan(text * V, V), {.temperature = 0}, i);
        token_seconds.push_back(watch.seconds());
        byte_seconds.push_back(reading.seconds());
    }
    const double all = static_cast<double>(bytes.weights) + bytes.keys, rate = 1 / median(token_seconds);
    const double bandwidth = 1 / median(byte_seconds);
    fmt::print(
        "{:10} {:5} {} x {:6.1f} tokens/s  {:7.1f} + {:5.1f} MB a token  {:5.1f} of {:5.1f} GB/s  {:5.1f} "
        "%\n",
        model.name, name, texts, rate, static_cast<double>(bytes.weights) / 1e6, bytes.keys / 1e6,
        rate * all / 1e9, bandwidth / 1e9, 100 * rate * all / bandwidth);
    std::fflush(stdout);
}

void run() {
    const int threads = option("BENCH_THREADS", default_thread_count());
    const auto device = make_cpu_device({.threads = threads});
    ThreadPool pool(threads);
    const nn::LanguageModel model = nn::language_model(text_option("BENCH_MODEL", "gpt2-124m"));
    fmt::print("{}, {} parameters; {} tokens, greedy; {}, {} threads\n", model.name, model.parameters,
               option("BENCH_TOKENS", 256), device->target().isa, threads);
    std::istringstream policies(text_option("BENCH_POLICIES", "fp32,bf16,int8,int4"));
    const std::int64_t prompt = option("BENCH_PROMPT", 0);
    for (std::string name; std::getline(policies, name, ',');) {
        measure(*device, model, name, pool);
        if (prompt > 0) measure_prompt(*device, model, name, prompt, pool);
    }
}

}  // namespace
}  // namespace mantissa

int main() {
    mantissa::run();
    return 0;
}
