// The instructions that multiply and add in each number format, level by level, and the rate of one unit:
// reckoned from instructions a cycle, the clock and the cores, beside the measured rate. Knows no clock and
// no core itself, so that tests can play a machine that others disturb.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

/// The units of a level on this CPU.
FormatUnits format_units(Isa isa);

struct UnitRates {
    double theoretical = 0, measured = 0;  ///< operations a second of all cores
    double issue = 0;                      ///< instructions a cycle of one core
    double clock = 0;                      ///< cycles a second
};

/// The rates that are measured, each anew at every call.
struct UnitMeasurements {
    FunctionRef<double()> core;             ///< operations a second of one core
    FunctionRef<double()> clock;            ///< its clock right after that
    FunctionRef<double(double)> all_cores;  ///< operations a second of all cores; the argument is enough
};

/// The theoretical rate is never below the measured one. If all cores together are faster than reckoned, one
/// core was disturbed when it was measured, so it is measured again. If that does not help, a core's share of
/// the joint rate counts as its rate.
UnitRates rates_of(const FormatUnit& unit, int cores, const UnitMeasurements& measurements);

/// The smallest rate of issue that a core may have, 1/16, 1/8, 1/4, 1/2, 1, 2, 3 or 4 instructions a cycle,
/// that is no less than a measured one. The clock may have been read 4 % low.
double possible_issue(double measured);

/// Operations a second, a multiply-add counted as two: the best of a few turns. Products have 1,024 columns,
/// are 768 deep, and have as many rows (16 ... 1,024) as take `operations` or less. None for other modes.
std::optional<double> whole_rate(std::string_view inputs, std::string_view accumulator, double operations,
                                 ThreadPool& pool, Isa isa);

}  // namespace mantissa::on_cpu
