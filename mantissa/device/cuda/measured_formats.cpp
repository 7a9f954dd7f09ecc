// Peaks of a GPU's formats: matrices by mma.sync with operands in registers, theoretical beside measured.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/device/cuda/measured_rates.h"

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

}  // namespace mantissa::on_cuda
