// The CPU's peaks in every format: what is reported, that loops do the work they count, and what is assumed.
#include "mantissa/device/cpu/measured_format_peaks.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <cmath>

#include "mantissa/device/cpu/peaks.h"
#include "mantissa/device/cpu/unit_rates.h"
#include "tests/device/levels.h"

namespace mantissa::on_cpu {
namespace {

TEST(FormatPeaks, CoresAreNoMoreThanThreads) {
    EXPECT_GE(available_cores(), 1);
    EXPECT_LE(available_cores(), CPU_SETSIZE);
}

/// Bits of a vector of the level.
int width_of(Isa isa) { return isa == Isa::generic ? 128 : isa == Isa::avx2 ? 256 : 512; }

TEST(FormatPeaks, AStepIsAMultiplyAddOfEachNumberInAVector) {
    for (const Isa isa : testable_levels()) {
        const FormatUnits units = format_units(isa);
        const double bits = width_of(isa);
        EXPECT_EQ(units.f64.operations, 2 * bits / 64) << name_of(isa);
        EXPECT_EQ(units.f32.operations, 2 * bits / 32) << name_of(isa);
        EXPECT_EQ(units.s32.operations, 2 * bits / 32) << name_of(isa);
        EXPECT_EQ(units.f16_as_f32.operations, 2 * bits / 32) << name_of(isa);
        EXPECT_EQ(units.f16.operations, units.f16.loop ? 2 * bits / 16 : 0) << name_of(isa);
    }
}

TEST(FormatPeaks, LoopsCountWholeSteps) {
    for (const Isa isa : testable_levels()) {
        const FormatUnits units = format_units(isa);
        for (const FormatUnit* unit : {&units.f64, &units.f32, &units.f16, &units.f16_as_f32, &units.bf16,
                                       &units.s32, &units.s8, &units.b1}) {
            if (!unit->loop) continue;
            const double steps = unit->loop(3) / unit->operations;
            EXPECT_EQ(steps, std::round(steps)) << name_of(isa) << " " << unit->name;
            EXPECT_GE(steps, 3 * 4) << name_of(isa) << " " << unit->name;  // four sums in flight at least
            EXPECT_LE(steps, 3 * 16) << name_of(isa) << " " << unit->name;
        }
    }
}

TEST(FormatPeaks, TheCompilerLeavesNoLoopOut) {
    ThreadPool pool(1);
    // A busy machine and a sanitizer leave a thousandth of a core's rate. A rate in thousands would be less.
    const double fewest = 1e5;
    for (const Isa isa : testable_levels()) {
        const FormatUnits units = format_units(isa);
        // Half of what a sparse loop counts are zeros that it skips.
        const double sparse = measured_rate(pool, units.sparse, 0.005) / units.f32.operations;
        EXPECT_LT(sparse, 2 * 4 * 7e9) << name_of(isa);
        EXPECT_GT(sparse, fewest) << name_of(isa);
        for (const FormatUnit* unit : {&units.f64, &units.f16_as_f32, &units.s32, &units.s8, &units.b1}) {
            const double steps = measured_rate(pool, unit->loop, 0.005) / unit->operations;
            // No core of today adds more than four vectors a cycle at 7 GHz.
            EXPECT_LT(steps, 4 * 7e9) << name_of(isa) << " " << unit->name;
            EXPECT_GT(steps, fewest) << name_of(isa) << " " << unit->name;
        }
    }
}

TEST(FormatPeaks, OfThisMachineAreReportedModeByMode) {
    ThreadPool pool(1);
    const FormatPeaks peaks =
        measured_format_peaks(pool, best_isa(), {.unit = 0.02, .memory = 0.05, .cache = 0.02});
    std::vector<std::string> modes;
    for (const MatrixPeak& peak : peaks.matrix) {
        modes.push_back(peak.inputs + "+" + peak.accumulator);
        EXPECT_EQ(peak.dense.has_value(), peak.measured.has_value()) << modes.back();
        EXPECT_FALSE(peak.sparse.has_value()) << modes.back();
        ASSERT_TRUE(peak.measured.has_value()) << modes.back();
        const bool models_run_in_it = peak.accumulator == "f32" || peak.inputs == "s8";
        EXPECT_EQ(peak.whole.value_or(0) > 0, models_run_in_it) << modes.back();
        EXPECT_EQ(peak.whole_sparse.has_value(), peak.measured == peaks.matrix[1].measured) << modes.back();
        EXPECT_GT(*peak.measured, 0) << modes.back();
        EXPECT_LE(*peak.measured, *peak.dense) << modes.back();
        EXPECT_FALSE(peak.by.empty()) << modes.back();
    }
    EXPECT_EQ(modes, (std::vector<std::string>{"f64+f64", "f32+f32", "tf32+f32", "f16+f32", "f16+f16",
                                               "bf16+f32", "s8+s32", "s4+s32", "b1+s32"}));
    ASSERT_EQ(peaks.vector.size(), 5u);
    EXPECT_GT(peaks.memory_measured.value_or(0), 1e8);
    // Rates are not compared with each other where a neighbour or a sanitizer may slow one of them: under
    // AddressSanitizer L1 came out below the memory.
    EXPECT_GT(peaks.l1_measured.value_or(0), 1e9);
    EXPECT_GT(peaks.l2_measured.value_or(0), 1e9);
}

}  // namespace
}  // namespace mantissa::on_cpu
