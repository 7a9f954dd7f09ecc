#include "mantissa/device/cuda/measured_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "mantissa/device/cuda/kernels/product_sample.h"

namespace mantissa::inline v0::on_cuda {

namespace {

/// Multiply-adds of a multiprocessor in a cycle: NVIDIA's architecture papers of A100 and H100.
struct UnitFact {
    const char *inputs, *accumulator;
    int of_80, of_90;
};
constexpr UnitFact unit_facts[] = {{"f64", "f64", 64, 128},     {"tf32", "f32", 512, 1024},
                                   {"f16", "f32", 1024, 2048},  {"f16", "f16", 1024, 2048},
                                   {"bf16", "f32", 1024, 2048}, {"s8", "s32", 2048, 4096}};

std::optional<double> theoretical(const codegen::PeakKernel& kernel, const GpuFacts& facts) {
    for (const UnitFact& fact : unit_facts)
        if (kernel.inputs == fact.inputs && kernel.accumulator == fact.accumulator &&
            (facts.capability == 80 || facts.capability == 90))
            return 2.0 * facts.multiprocessors * facts.clock *
                   (facts.capability == 80 ? fact.of_80 : fact.of_90);
    return {};
}

/// Operations a second, of runs that take a few milliseconds.
double measured_rate_of(Device& device, Context& context, const codegen::PeakKernel& kernel) {
    constexpr double enough = 2e-3;
    constexpr std::int64_t max_times = std::int64_t{1} << 20;
    const codegen::GridKernel named{.name = fmt::format("peak_{}_{}", kernel.inputs, kernel.accumulator),
                                    .code = kernel};
    const auto made = context.modules.add(named);
    device.compile_kernels();
    const auto bytes =
        static_cast<std::size_t>(kernel.blocks * codegen::grid_threads) * sizeof(std::uint32_t);
    const auto results = device.allocate(bytes, "results of products");
    constexpr std::int64_t warps = codegen::grid_threads / 32;
    for (std::int64_t times = 1;; times *= 4) {
        const Launch queue = [&](const Operands& operands) {
            launch(context, *made, kernel.blocks,
                   {address_of(operands.outputs[0]), static_cast<std::uint64_t>(times)});
        };
        const double seconds = fastest_run(
            device, BoundLaunch{.launch = &queue, .inputs = {}, .outputs = {{results->data(), bytes}}});
        if (seconds >= enough || times >= max_times)
            return static_cast<double>(kernel.blocks * warps * times * codegen::peak_products *
                                       codegen::operations_of_product(kernel)) /
                   seconds;
    }
}

}  // namespace

FormatPeaks measured_formats(Device& device, Context& context, const GpuFacts& facts) {
    constexpr std::int64_t blocks_of_multiprocessor = 2;  // sixteen warps, four for each of its units
    FormatPeaks peaks{.device = fmt::format("{}, {}", device.target().name, device.target().isa)};
    for (codegen::PeakKernel kernel : codegen::peak_kernels()) {
        kernel.blocks = blocks_of_multiprocessor * facts.multiprocessors;
        peaks.matrix.push_back({.inputs = kernel.inputs,
                                .accumulator = kernel.accumulator,
                                .dense = theoretical(kernel, facts),
                                .measured = measured_rate_of(device, context, kernel),
                                .by = "mma.sync"});
    }
    const double scratch_bytes = std::min(4.0 * static_cast<double>(device.target().l2_bytes),
                                          static_cast<double>(device.free_memory()) / 4);
    const auto scratch = device.allocate(static_cast<std::size_t>(scratch_bytes), "bandwidth measurement");
    if (facts.memory > 0) peaks.memory = facts.memory;
    peaks.memory_measured = measured_copy(device, {scratch->data(), scratch->size()});
    peaks.notes.push_back("s4 and b1 are no formats of what trains here, and newer chips leave them out");
    if (facts.capability >= 90)
        peaks.notes.push_back("this chip's wgmma, which mantissa does not use, is quicker than mma.sync");
    if (facts.capability != 80 && facts.capability != 90)
        peaks.notes.push_back("theoretical rates are known of compute capabilities 8.0 and 9.0");
    peaks.notes.push_back("vectors are not measured yet");
    return peaks;
}

namespace {

constexpr int timed_runs = 5;

/// Fills memory with the same numbers again and again.
void fill(Device& device, std::span<std::byte> memory, DType dtype) {
    const std::vector<std::byte> drawn = numbers_to_multiply(dtype);
    for (std::size_t at = 0; at < memory.size(); at += drawn.size())
        device.copy_to_device(memory.data() + at,
                              std::span(drawn).first(std::min(drawn.size(), memory.size() - at)));
}

/// Seconds of a product of square matrices; none where no kernel takes it.
std::optional<double> seconds_of_product(Device& device, DType dtype, std::int64_t extent) {
    const Type matrix{dtype, {extent, extent}};
    const Attributes attributes{{"transpose_a", false}, {"transpose_b", true}};
    const std::vector<Type> inputs{matrix, matrix}, outputs{matrix};
    const Problem problem{find_op("matmul"), inputs, outputs, attributes};
    for (const Kernel& kernel : device.kernels("matmul")) {
        const Expected<PreparedKernel> prepared = kernel.prepare(problem);
        if (!prepared) continue;
        const auto bytes = static_cast<std::size_t>(matrix.bytes());
        const auto held = device.allocate(3 * bytes, "measurement of arithmetic");
        const std::span memory(held->data(), held->size());
        fill(device, memory.first(2 * bytes), dtype);
        device.compile_kernels();
        const auto workspace = device.allocate(static_cast<std::size_t>(prepared->workspace), "a workspace");
        return fastest_run(device,
                           BoundLaunch{.launch = &prepared->launch,
                                       .inputs = {memory.subspan(0, bytes), memory.subspan(bytes, bytes)},
                                       .outputs = {memory.subspan(2 * bytes, bytes)},
                                       .workspace = {workspace->data(), workspace->size()}});
    }
    return {};
}

/// FLOP/s of the largest product that takes a quarter of the free memory at most, and little time: 8,192
/// keeps the multiprocessors of any GPU busy with several tiles each.
double rate_of_products(Device& device, DType dtype) {
    constexpr std::int64_t largest = 8192;
    constexpr double longest = 2e-3;  // seconds of one run; a tenth of a second has several
    double rate = 0;
    for (std::int64_t extent = 128; extent <= largest; extent *= 2) {
        if (3 * Type{dtype, {extent, extent}}.bytes() > device.free_memory() / 4) break;
        const std::optional<double> seconds = seconds_of_product(device, dtype, extent);
        if (!seconds) break;
        const auto length = static_cast<double>(extent);
        rate = 2 * length * length * length / *seconds;
        if (*seconds > longest) break;
    }
    return rate;
}

}  // namespace

double fastest_run(Device& device, const BoundStep& step) {
    const std::unique_ptr<Program> program = device.bind({&step, 1});
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < timed_runs; ++i) {
        const std::unique_ptr<Event> begin = device.record();
        program->run();
        const std::unique_ptr<Event> end = device.record();
        device.wait(*end);
        least = std::min(least, device.seconds_between(*begin, *end));
    }
    return least;
}

double measured_copy(Device& device, std::span<std::byte> scratch) {
    const std::vector<std::byte> zeros(scratch.size());
    device.copy_to_device(scratch.data(), zeros);
    const std::size_t half = scratch.size() / 2;
    const double seconds =
        fastest_run(device, BoundCopy{.from = scratch.subspan(0, half), .to = scratch.data() + half});
    return 2.0 * static_cast<double>(half) / seconds;
}

Peaks measured_rates(Device& device, std::span<std::byte> scratch) {
    Peaks peaks;
    peaks.copy = measured_copy(device, scratch);
    peaks.f32_fma = rate_of_products(device, DType::f32);
    peaks.bf16_matrix = rate_of_products(device, DType::bf16);
    return peaks;
}

}  // namespace mantissa::on_cuda
