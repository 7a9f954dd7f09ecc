// How fast one core multiplies BF16 by each unit that it has, beside FP32. The unit is chosen by these rates
// and never by feature bits. Where a hypervisor hides AMX, the remaining dot products run at half of FP32's
// rate, on other CPUs at twice. Every unit here multiplies exactly and sums in FP32; FP16's own instructions
// sum in FP16, so they are no candidates at any rate.
#pragma once

#include <optional>
#include <string>

#include "mantissa/base/function_ref.h"
#include "mantissa/device/cpu/isa.h"

namespace mantissa::inline v0::on_cpu {

/// FLOP/s of one core; 0: the CPU lacks the unit, or there is nothing to choose.
struct CoreRates {
    double f32_fma = 0;
    double bf16_dot = 0;    ///< dot products of pairs, AVX512_BF16
    double bf16_tiles = 0;  ///< AMX
};

/// The fastest of turns of each unit. `turn` takes one turn of every unit, one after another, so that a
/// disturbance of the core meets all alike. Ratios of true rates are powers of two; any other ratio says that
/// a unit was disturbed. Then more turns are taken, up to some hundred times as many.
CoreRates rates_by_turns(FunctionRef<CoreRates()> turn);

/// The rates of this CPU, measured once a process in a few milliseconds, where it has a unit to choose.
CoreRates core_rates();

/// Makes these the rates from now on; none: the measured rates. For tests, which pretend to be other CPUs.
void set_core_rates(std::optional<CoreRates> rates);

/// The fastest level of a CPU whose highest is `best`. Dot products must beat widened operands by more than
/// half of a factor of two, and tiles whatever is left.
Isa fastest_isa(Isa best, const CoreRates& rates);

/// Whether FP32 and FP16 operands in parts of BF16, so three products and more for one, beat FP32's own.
/// Tiles do: 16 rows and columns make them 16 times as fast by design. Dot products gain twice at most.
constexpr bool splitting_pays(Bf16Unit unit) { return unit == Bf16Unit::amx; }

/// Why BF16 is multiplied as it is at a level, for people: "BF16 is multiplied by vdpbf16ps, 2.0 times FP32's
/// rate here".
std::string reason_of_unit(Isa isa, const CoreRates& rates);

}  // namespace mantissa::on_cpu
