// Times of operations made of others, or by the generator, compared with their reference operations: both in
// turns, and the reference again, with its ratio to itself as the spread.
//
// BENCH_TURNS (9), BENCH_THREADS (all). Tensors are beyond the last cache. MANTISSA_ISA chooses the level.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/cpu_device.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "mantissa/runtime/execution.h"

namespace mantissa {
namespace {

using In = const std::vector<Tensor>&;
using Build = std::function<Tensor(Graph&, In)>;

/// An operation on operands of its own.
class Timed {
  public:
    Timed(Device& device, const std::vector<Type>& types, const Build& build, std::int64_t ids_below) {
        Graph graph;
        std::vector<Tensor> inputs;
        for (std::size_t i = 0; i < types.size(); ++i)
            inputs.emplace_back(graph, graph.add_input(fmt::format("x{}", i), types[i]));
        graph.add_result("y", build(graph, inputs).value());
        const Machine machine = machine_for_passes(device);
        const auto lacks_kernel = [&](const Graph& g, const Node& node) {
            return !machine.has_kernel(g, node);
        };
        plan_ = std::make_unique<Plan>(expand(graph, lacks_kernel), device);
        state_ = std::make_unique<StateBlock>(device, plan_->graph().states());
        arena_ = device.allocate_zeroed(static_cast<std::size_t>(plan_->memory().arena_bytes), "arena");
        execution_ = std::make_unique<Execution>(*plan_, *state_, *arena_);
        for (std::size_t i = 0; i < types.size(); ++i) fill(fmt::format("x{}", i), types[i], ids_below);
        run();
    }

    double run() {
        const Stopwatch watch;
        execution_->run();
        return watch.milliseconds();
    }

  private:
    void fill(const std::string& name, const Type& type, std::int64_t below) {
        const RandomStream random{.seed = 1, .step = 0, .operation = 0};
        const auto count = static_cast<std::size_t>(type.shape.elements());
        if (type.dtype == DType::i32) {
            std::vector<std::int32_t> ids(count);
            for (std::size_t i = 0; i < count; ++i)
                ids[i] = static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint64_t>(below));
            return execution_->set_input(name, std::span<const std::int32_t>(ids));
        }
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = random.uniform(i) + 0.25f;
        execution_->set_input(name, std::span<const float>(values));
    }

    std::unique_ptr<Plan> plan_;
    std::unique_ptr<StateBlock> state_;
    std::unique_ptr<DeviceMemory> arena_;
    std::unique_ptr<Execution> execution_;
};

struct Side {
    const char* name;
    std::vector<Type> types;
    Build build;
    std::int64_t ids_below = 1;
};

void compare(Device& device, const Side& measured, const Side& reference) {
    Timed a(device, measured.types, measured.build, measured.ids_below);
    Timed b(device, reference.types, reference.build, reference.ids_below);
    std::vector<double> of_a, of_b, again;
    for (int turn = 0, turns = on_cpu::option("BENCH_TURNS", 9); turn < turns; ++turn) {
        of_a.push_back(a.run());
        of_b.push_back(b.run());
        again.push_back(b.run());
    }
    const double x = on_cpu::median(of_a), y = on_cpu::median(of_b);
    fmt::print("{:34} {:9.3f} ms   {:24} {:9.3f} ms   rate {:5.2f}   spread {:5.2f}\n", measured.name, x,
               reference.name, y, y / x, on_cpu::median(again) / y);
}

Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }

Side function(const char* op) {
    return {op, {f32({16, 1 << 20})}, [op](Graph&, In x) { return call1(op, {x[0]}); }};
}

/// y = x W for rows in groups of unequal size, and for all rows with one matrix.
void compare_groups(Device& device, Shape w) {
    const std::int64_t R = 4096, E = w[0];
    std::vector<double> counts;
    for (std::int64_t i = 0; i < E; ++i)
        counts.push_back(static_cast<double>(R / E + (i % 2 == 0 ? 1 : -1) * (R / E / 4)));
    const auto grouped = [=](Graph& g, In x) {
        return grouped_matmul(x[0], x[1], literal(g, counts, DType::i32, {E}));
    };
    const auto outer = [=](Graph& g, In x) {
        return call1("grouped_outer", {x[0], x[1], literal(g, counts, DType::i32, {E})});
    };
    const std::int64_t K = w[1], N = w[2];
    compare(device, {"grouped_matmul of 8", {f32({R, K}), f32(w)}, grouped},
            {"matmul", {f32({R, K}), f32({K, N})}, [](Graph&, In x) { return matmul(x[0], x[1]); }});
    compare(device, {"grouped_outer of 8", {f32({R, K}), f32({R, N})}, outer},
            {"matmul", {f32({R, K}), f32({R, N})}, [](Graph&, In x) {
                 return matmul(x[0], x[1], {.transpose_a = true});
             }});
}

void run() {
    const auto device = make_cpu_device({.threads = on_cpu::option("BENCH_THREADS", 0)});
    fmt::print("{}, {} threads\n", device->target().isa, device->target().threads);
    for (const char* op : {"exp", "floor", "sign", "log1p", "expm1"})
        compare(*device, function(op), function("gelu"));
    const Type large = f32({4096, 4096});
    const Side two{"pow", {large, large}, [](Graph&, In x) { return pow(x[0], x[1]); }};
    compare(*device, two, function("gelu"));
    const Side total{"sum over rows", {large}, [](Graph&, In x) { return sum(x[0], {1}); }};
    compare(*device, {"cumsum over rows", {large}, [](Graph&, In x) { return cumsum(x[0], 1); }}, total);
    const Side copied{"copy", {f32({1 << 15, 512})}, [](Graph&, In x) { return ops::concat({&x[0], 1}, 0); }};
    const Type ids{DType::i32, {1 << 15}};
    compare(*device,
            {"gather of rows",
             {f32({1 << 15, 512}), ids},
             [](Graph&, In x) { return take(x[0], 0, x[1]); },
             1 << 15},
            copied);
    compare(*device,
            {"scatter_add of rows",
             {f32({1 << 15, 512}), ids},
             [](Graph&, In x) {
                 return call1("embedding_grad", {x[0], x[1]}, {{"rows", std::int64_t{1} << 15}});
             },
             1 << 15},
            copied);
    compare_groups(*device, {8, 768, 3072});
    compare_groups(*device, {8, 1024, 1024});
    const Side softmaxed{"softmax", {f32({4096, 1024})}, [](Graph&, In x) { return softmax(x[0]); }};
    compare(*device,
            {"sort of rows of 1024", {f32({4096, 1024})}, [](Graph&, In x) { return argsort(x[0]); }},
            softmaxed);
    compare(*device,
            {"top_k of 8 of 1024", {f32({4096, 1024})}, [](Graph&, In x) { return top_k(x[0], 8).indices; }},
            softmaxed);
    const Side images{"copy", {f32({8, 128, 128, 64})}, [](Graph&, In x) {
                          return ops::concat({&x[0], 1}, 0);
                      }};
    compare(*device,
            {"resize to twice the size",
             {f32({8, 64, 64, 64})},
             [](Graph&, In x) {
                 return resize(x[0], {128, 128});
             }},
            images);
}

}  // namespace
}  // namespace mantissa

int main() { mantissa::run(); }
