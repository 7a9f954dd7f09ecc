#include "mantissa/device/cpu/unit_rates.h"

#include <algorithm>

namespace mantissa::inline v0::on_cpu {

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
        // Both are measured in turns, so the clock is that of a core which did this very work a moment ago.
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
