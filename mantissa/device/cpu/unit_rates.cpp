#include "mantissa/device/cpu/unit_rates.h"

#include <algorithm>
#include <functional>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t columns = 1024, depth = 768;

/// Numbers between 1 and 2, so that nothing is subnormal.
Buffer operand(DType type, std::int64_t rows) {
    Buffer buffer(static_cast<std::size_t>(rows * depth) * size_of(type), "operands to multiply");
    for (std::int64_t i = 0; i < rows * depth; ++i)
        store_from_f64(buffer.data(), type, i, 1 + static_cast<double>(i % 61) / 64);
    return buffer;
}

double best_rate(double work, const std::function<void()>& multiply) {
    constexpr int turns = 15;  // the first is a warm-up; others may use the cores
    double best = 0;
    for (int turn = 0; turn < turns; ++turn) {
        const Stopwatch watch;
        multiply();
        best = std::max(best, work / watch.seconds());
    }
    return best;
}

ContractionProblem problem_of(DType type, Multiply as, std::int64_t rows, std::int64_t k) {
    return {.m = rows,
            .n = columns,
            .k = k,
            .a = {.dtype = type, .leading = k},
            .b = {.dtype = type, .transpose = Transpose::yes, .leading = k},
            .out = {.leading = columns},
            .multiply = as};
}

double contraction_rate(const PreparedContraction& prepared, double work, ThreadPool& pool) {
    const ContractionProblem& problem = prepared.problem;
    const Buffer a = operand(problem.a.dtype, problem.m), b = operand(problem.b.dtype, columns);
    const Buffer out(static_cast<std::size_t>(problem.sums()) * sizeof(float), "their product");
    const Buffer workspace(prepared.workspace_bytes(pool.threads()));
    return best_rate(work, [&] {
        contract(prepared, {.a = a.data(), .b = b.data(), .out = out.data()}, workspace.as<std::byte>(),
                 pool);
    });
}

}  // namespace

std::optional<double> whole_rate(std::string_view inputs, std::string_view accumulator, double operations,
                                 ThreadPool& pool, Isa isa) {
    constexpr double of_row = 2.0 * columns * depth;
    const auto rows = static_cast<std::int64_t>(std::clamp(operations / of_row / 16, 1.0, 64.0)) * 16;
    const double work = of_row * static_cast<double>(rows);
    if (inputs == "s8")
        return contraction_rate(
            prepare_contraction(problem_of(DType::f32, Multiply::as_stored, rows, depth / 4),
                                byte_kernels_of(rows, isa)),
            work, pool);
    if (accumulator != "f32") return std::nullopt;
    const auto contracts = [&](DType type, Multiply as = Multiply::as_stored) {
        return contraction_rate(prepare_contraction(problem_of(type, as, rows, depth), isa), work, pool);
    };
    if (inputs == "f32") return contracts(DType::f32);
    if (inputs == "tf32") return contracts(DType::f32, Multiply::tf32);
    if (inputs == "f16") return contracts(DType::f16);
    if (inputs == "bf16") return contracts(DType::bf16);
    return std::nullopt;
}

FormatUnits format_units(Isa isa) {
    if (isa < Isa::avx512) return isa == Isa::generic ? peak_units_generic() : peak_units_avx2();
    FormatUnits units = peak_units_avx512();
    if (has_avx512_fp16()) units.f16 = f16_unit_avx512_fp16();
    if (has_avx512_vnni()) units.s8 = s8_unit_avx512_vnni();
    if (has_avx512_vpopcntdq()) units.b1 = b1_unit_avx512_vpopcntdq();
    if (isa == Isa::avx512_bf16) units.bf16 = bf16_unit_avx512_bf16();
    if (isa == Isa::amx) {
        units.bf16 = bf16_unit_amx();
        units.s8 = s8_unit_amx();
    }
    return units;
}

namespace {

constexpr double error_of_clock = 1.04;

}  // namespace

double possible_issue(double measured) {
    for (const double issue : {0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0})
        if (measured <= error_of_clock * issue) return issue;
    return measured;
}

UnitRates rates_of(const FormatUnit& unit, int cores, const UnitMeasurements& measurements) {
    constexpr int attempts = 4, turns = 10;
    const double instructions = unit.instructions / unit.operations;  // of one operation
    const auto issue = [&](double core, double clock) { return possible_issue(core * instructions / clock); };
    double core = 0, clock = 0, measured = 0;
    for (int attempt = 0; attempt < attempts; ++attempt) {
        // Both are measured in turns, so the clock is a core's that did this very work a moment ago.
        for (int turn = 0; turn < turns; ++turn) {
            core = std::max(core, measurements.core());
            clock = std::max(clock, measurements.clock());
        }
        const double reckoned = issue(core, clock) * clock / instructions * cores;
        measured = std::max(measured, measurements.all_cores(0.98 * reckoned));
        if (measured <= error_of_clock * reckoned) break;
    }
    core = std::max(core, measured / cores);
    UnitRates rates{.measured = measured, .issue = issue(core, clock)};
    rates.clock = std::max(clock, core * instructions / rates.issue);  // it was read a little low
    rates.theoretical = std::max(rates.issue * rates.clock / instructions * cores, measured);  // or rounded
    return rates;
}

}  // namespace mantissa::on_cpu
