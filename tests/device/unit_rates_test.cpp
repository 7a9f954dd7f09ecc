// The rate reckoned for a unit beside the measured one, on machines that are played: quiet ones, and such as
// somebody else slows down while they are measured.
#include "mantissa/device/cpu/unit_rates.h"

#include <gtest/gtest.h>

namespace mantissa::on_cpu {
namespace {

TEST(UnitRates, ARateOfIssueIsRoundedUp) {
    EXPECT_EQ(possible_issue(0.93), 1.0);
    EXPECT_EQ(possible_issue(1.03), 1.0);
    EXPECT_EQ(possible_issue(1.05), 2.0);
    EXPECT_EQ(possible_issue(0.06), 0.0625);
    EXPECT_EQ(possible_issue(2.2), 3.0);
}

constexpr FormatUnit unit{.loop = nullptr, .operations = 32, .instructions = 1, .name = "FMA, 512 bits"};
constexpr FormatUnit long_unit{.loop = nullptr, .operations = 32, .instructions = 6, .name = "six of them"};
constexpr int cores = 2;
constexpr int turns = 10;  // in which one core is measured before all are

/// Two cores at 4 GHz that do two instructions a cycle.
struct PlayedMachine {
    double core_slowed = 1, clock_slowed = 1;  ///< to this share...
    int disturbed = 0;                         ///< ...in so many measurements
    double share_of_all = 1;                   ///< of what each core does alone
    int core_measured = 0, clock_measured = 0, all_measured = 0;

    UnitRates rates(const FormatUnit& of) {
        const double core_can = 2 * 4e9 / of.instructions * of.operations;
        const auto core = [&] { return core_can * (core_measured++ < disturbed ? core_slowed : 1); };
        const auto clock = [&] { return 4e9 * (clock_measured++ < disturbed ? clock_slowed : 1); };
        const auto all = [&](double) { return ++all_measured, share_of_all * cores * core_can; };
        return rates_of(of, cores, {.core = core, .clock = clock, .all_cores = all});
    }
};

/// 2 x 2 x 4e9 instructions a second.
constexpr double peak = 16e9 * 32;

TEST(UnitRates, OfAQuietMachineAreWhatItDoes) {
    for (const FormatUnit& of : {unit, long_unit}) {
        PlayedMachine machine;
        const UnitRates rates = machine.rates(of);
        EXPECT_DOUBLE_EQ(rates.theoretical, peak / of.instructions);
        EXPECT_DOUBLE_EQ(rates.measured, peak / of.instructions);
        EXPECT_EQ(rates.issue, 2);
        EXPECT_EQ(rates.clock, 4e9);
        EXPECT_EQ(machine.all_measured, 1);
        EXPECT_EQ(machine.core_measured, turns);
    }
}

TEST(UnitRates, BusyCoresFallShortOfWhatIsReckoned) {
    PlayedMachine machine{.share_of_all = 0.4};
    const UnitRates rates = machine.rates(unit);
    EXPECT_DOUBLE_EQ(rates.theoretical, peak);
    EXPECT_DOUBLE_EQ(rates.measured, 0.4 * peak);
    EXPECT_EQ(machine.all_measured, 1);
}

TEST(UnitRates, ACoreThatWasDisturbedIsMeasuredAgain) {
    // Halved, as by another thread on the same core: one instruction a cycle, for so long.
    PlayedMachine machine{.core_slowed = 0.5, .disturbed = turns};
    const UnitRates rates = machine.rates(unit);
    EXPECT_DOUBLE_EQ(rates.theoretical, peak);
    EXPECT_DOUBLE_EQ(rates.measured, peak);
    EXPECT_EQ(rates.issue, 2);
    EXPECT_EQ(machine.core_measured, 2 * turns);
}

TEST(UnitRates, AClockReadTooLowIsReadAgain) {
    PlayedMachine machine{.core_slowed = 0.8, .clock_slowed = 0.8, .disturbed = turns};
    const UnitRates rates = machine.rates(unit);
    EXPECT_DOUBLE_EQ(rates.theoretical, peak);
    EXPECT_EQ(rates.clock, 4e9);
    EXPECT_EQ(machine.clock_measured, 2 * turns);
}

TEST(UnitRates, AClockReadALittleLowIsWhatTheCoresNeeded) {
    PlayedMachine machine{.clock_slowed = 0.97, .disturbed = 1000};
    const UnitRates rates = machine.rates(unit);
    EXPECT_DOUBLE_EQ(rates.theoretical, peak);
    EXPECT_DOUBLE_EQ(rates.clock, 4e9);
    EXPECT_EQ(rates.issue, 2);
    EXPECT_EQ(machine.all_measured, 1);
}

TEST(UnitRates, WhereMeasuringAgainDoesNotHelpAllCoresTogetherTell) {
    PlayedMachine machine{.core_slowed = 0.5, .disturbed = 1000};
    const UnitRates rates = machine.rates(unit);
    EXPECT_DOUBLE_EQ(rates.theoretical, peak);
    EXPECT_EQ(rates.issue, 2);
    EXPECT_LE(machine.all_measured, 4);
}

TEST(UnitRates, TheoreticalIsNeverBelowMeasured) {
    for (const double core_slowed : {1.0, 0.9, 0.5, 0.3, 0.1})
        for (const double clock_slowed : {1.0, 0.99, 0.95, 0.9, 0.5, 0.3})
            for (const int instructions : {1, 6, 7, 150}) {
                PlayedMachine machine{
                    .core_slowed = core_slowed, .clock_slowed = clock_slowed, .disturbed = 1000};
                FormatUnit of = unit;
                of.instructions = instructions;
                const UnitRates rates = machine.rates(of);
                EXPECT_GE(rates.theoretical, rates.measured) << core_slowed << " " << clock_slowed;
                EXPECT_DOUBLE_EQ(rates.measured, peak / instructions);
            }
}

}  // namespace
}  // namespace mantissa::on_cpu
