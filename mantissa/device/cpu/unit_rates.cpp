#include "mantissa/device/cpu/unit_rates.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "mantissa/base/buffer.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/modes/byte_product.h"
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

double contraction_rate(DType type, Multiply as, std::int64_t rows, double work, ThreadPool& pool, Isa isa) {
    const PreparedContraction prepared =
        prepare_contraction({.m = rows,
                             .n = columns,
                             .k = depth,
                             .a = {.dtype = type, .leading = depth},
                             .b = {.dtype = type, .transpose = Transpose::yes, .leading = depth},
                             .out = {.leading = columns},
                             .multiply = as},
                            isa);
    const Buffer a = operand(type, rows), b = operand(type, columns);
    const Buffer out(static_cast<std::size_t>(rows * columns) * sizeof(float), "their product");
    const Buffer workspace(prepared.workspace_bytes(pool.threads()));
    return best_rate(work, [&] {
        contract(prepared, {.a = a.data(), .b = b.data(), .out = out.data()}, workspace.as<std::byte>(),
                 pool);
    });
}

double byte_rate(std::int64_t rows, double work, ThreadPool& pool, Isa isa) {
    const Buffer a(static_cast<std::size_t>(rows * depth)), b(static_cast<std::size_t>(columns * depth));
    for (const Buffer* each : {&a, &b}) std::memset(each->data(), 3, each->size());
    const Buffer d(static_cast<std::size_t>(rows * columns) * sizeof(std::int32_t));
    const ByteProduct product{
        .m = rows, .n = columns, .k = depth, .a = a.data(), .b = b.data(), .d = d.data()};
    const Buffer workspace(byte_product_workspace(product, isa, pool.threads()));
    return best_rate(work, [&] { multiply_bytes(product, workspace.as<std::byte>(), pool, isa); });
}

}  // namespace

std::optional<double> whole_rate(std::string_view inputs, std::string_view accumulator, double operations,
                                 ThreadPool& pool, Isa isa) {
    constexpr double of_row = 2.0 * columns * depth;
    const auto rows = static_cast<std::int64_t>(std::clamp(operations / of_row / 16, 1.0, 64.0)) * 16;
    const double work = of_row * static_cast<double>(rows);
    if (inputs == "s8") return byte_rate(rows, work, pool, isa);
    if (accumulator != "f32") return std::nullopt;
    const auto contracts = [&](DType type, Multiply as = Multiply::as_stored) {
        return contraction_rate(type, as, rows, work, pool, isa);
    };
    if (inputs == "f32") return contracts(DType::f32);
    if (inputs == "tf32") return contracts(DType::f32, Multiply::tf32);
    if (inputs == "f16") return contracts(DType::f16);
    if (inputs == "bf16") return contracts(DType::bf16);
    return std::nullopt;
}

namespace {

constexpr FormatUnits generic_units{
    .f64 = {f64_loop_generic, 4, 2, "mulpd and addpd"},
    .f32 = {fma_loop_generic, 8, 2, "mulps and addps"},
    .f16 = {},
    // The compiler makes about so many SSE2 instructions of these, not one or two.
    .s32 = {s32_loop_generic, 8, 7, "pmuludq, shuffles and paddd"},
    .s8 = {s8_loop_generic, 32, 40, "SSE2 without dot products"},
    .b1 = {b1_loop_generic, 256, 18, "SSE2 without counts of ones"},
    .f16_as_f32 = {f16_loop_generic, 8, 150, "SSE2, each sum rounded to FP16"},
    .sparse = sparse_loop_generic,
    .read = read_loop_generic,
};

constexpr FormatUnits avx2_units{
    .f64 = {f64_loop_avx2, 8, 1, "FMA, 256 bits"},
    .f32 = {fma_loop_avx2, 16, 1, "FMA, 256 bits"},
    .f16 = {},
    .s32 = {s32_loop_avx2, 16, 2, "vpmulld and vpaddd, 256 bits"},
    .s8 = {s8_loop_avx2, 64, 4, "vpmaddwd and vpaddd of each half, 256 bits"},
    .b1 = {b1_loop_avx2, 512, 10, "vpxor, vpshufb and sums, 256 bits"},
    .f16_as_f32 = {f16_loop_avx2, 16, 18, "FP32, each sum rounded to FP16, 256 bits"},
    .sparse = sparse_loop_avx2,
    .read = read_loop_avx2,
};

FormatUnits avx512_units() {
    FormatUnits units{
        .f64 = {f64_loop_avx512, 16, 1, "FMA, 512 bits"},
        .f32 = {fma_loop_avx512, 32, 1, "FMA, 512 bits"},
        .f16 = {},
        .s32 = {s32_loop_avx512, 32, 2, "vpmulld and vpaddd, 512 bits"},
        .s8 = avx2_units.s8,
        .b1 = avx2_units.b1,
        .f16_as_f32 = {f16_loop_avx512, 32, 6, "FP32, each sum rounded to FP16, 512 bits"},
        .sparse = sparse_loop_avx512,
        .read = read_loop_avx512,
    };
    if (has_avx512_fp16()) units.f16 = {f16_loop_avx512_fp16, 64, 1, "FMA of FP16, 512 bits"};
    if (has_avx512_vnni()) units.s8 = {s8_loop_avx512_vnni, 128, 1, "vpdpbusd, 512 bits"};
    if (has_avx512_vpopcntdq())
        units.b1 = {b1_loop_avx512_vpopcntdq, 1024, 3, "vpxord, vpopcntd and vpaddd, 512 bits"};
    return units;
}

}  // namespace

FormatUnits format_units(Isa isa) {
    FormatUnits units;
    switch (isa) {
        case Isa::generic:
            return generic_units;
        case Isa::avx2:
            return avx2_units;
        case Isa::avx512:
            return avx512_units();
        case Isa::avx512_bf16:
            units = avx512_units();
            units.bf16 = {dot_loop_avx512_bf16, 64, 1, "vdpbf16ps, 512 bits"};
            return units;
        case Isa::amx:
            units = avx512_units();
            units.bf16 = {tile_loop_amx, 16 * 16 * 32 * 2, 1, "tdpbf16ps, tiles"};
            units.s8 = {s8_tile_loop_amx, 16 * 16 * 64 * 2, 1, "tdpbssd, tiles"};
            return units;
    }
    throw InternalError("an instruction-set level outside of its enumeration");
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
