// GELU written as its formula, on FP32: operation by operation, each with a round trip through memory,
// compared with one fused kernel, one read and one write. Both are compared with a copy on the same machine
// in the same run.
//
//   bench_fusion [--megabytes 256] [--threads N]
//
// Peaks and both forms are measured in turns; the best of each is compared. Bytes are the operations' reads
// and writes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"

namespace {

using namespace mantissa;

Graph gelu_formula(std::int64_t elements) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {elements}}));
    const Tensor inner = (x + x * x * x * 0.044715) * 0.7978845608028654;
    graph.add_result("y", (x * 0.5 * (tanh(inner) + 1.0)).value());
    return simplify(graph);
}

struct Form {
    Form(const char* name, Graph graph, Device& device)
        : called(name),
          plan(std::move(graph), device),
          state(device, {}),
          arena(device.allocate(static_cast<std::size_t>(plan.memory().arena_bytes), name)),
          execution(plan, state, *arena) {
        for (const PlannedNode& node : plan.nodes()) bytes += node.cost.bytes;
        const Type& type = plan.graph().node(plan.graph().inputs()[0]).outputs[0];
        std::vector<float> x(static_cast<std::size_t>(type.shape.elements()));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000) / 125.0f - 4.0f;
        execution.set_input("x", std::span<const float>(x));
    }

    void measure() {
        const Stopwatch watch;
        execution.run();
        seconds = std::min(seconds, watch.seconds());
    }

    const char* called;
    Plan plan;
    StateBlock state;
    std::unique_ptr<DeviceMemory> arena;
    Execution execution;
    std::int64_t bytes = 0;
    double seconds = 1e9;
};

void compare(std::int64_t megabytes, int threads) {
    const auto device = make_cpu_device({.threads = threads});
    if (!device->target().cannot_compile.empty()) throw UserError(device->target().cannot_compile);
    const Graph formula = gelu_formula((megabytes << 20) / 4);
    Form one_by_one("one by one", formula, *device), fused("fused", fuse(formula).graph, *device);
    const auto scratch = device->allocate(std::size_t{256} << 20, "bandwidth measurement");
    double copy = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
        copy = std::max(copy, device->measure_peaks(*scratch).copy);
        one_by_one.measure();
        fused.measure();
    }
    fmt::print("GELU by its formula on {} MB of FP32, {}, {}, {} threads; copy {:.1f} GB/s\n", megabytes,
               device->target().name, device->target().isa, device->target().threads, copy / 1e9);
    for (const Form* form : {&one_by_one, &fused})
        fmt::print("{:<11} {:>2} kernels  {:>7.2f} GB  {:>8.2f} ms  {:>6.1f} GB/s  {:.2f} of copy\n",
                   form->called, form->plan.nodes().size(), static_cast<double>(form->bytes) / 1e9,
                   form->seconds * 1e3, static_cast<double>(form->bytes) / form->seconds / 1e9,
                   static_cast<double>(form->bytes) / form->seconds / copy);
    fmt::print("fused is {:.1f} times as quick and moves {:.1f} times fewer bytes\n",
               one_by_one.seconds / fused.seconds,
               static_cast<double>(one_by_one.bytes) / static_cast<double>(fused.bytes));
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("GELU as its formula: one by one against fused");
    std::int64_t megabytes = 256;
    int threads = 0;
    app.add_option("--megabytes", megabytes, "Size of x")->capture_default_str()->check(CLI::PositiveNumber);
    app.add_option("--threads", threads, "Threads to use (default: all that may be)");
    CLI11_PARSE(app, argc, argv);
    try {
        compare(megabytes, threads);
    } catch (const UserError& error) {
        fmt::print(stderr, "bench_fusion: {}\n", error.what());
        return 1;
    }
    return 0;
}
