#include "mantissa/device/cpu/core_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constinit std::optional<CoreRates> rates_by_order;

/// Between 1, where widened operands are as fast, and 2, where the unit is twice as fast.
constexpr double threshold = std::numbers::sqrt2;

/// Some 5 to 20 microseconds: short beside the time that a system gives another process a core for.
double rate_of_turn(PeakLoop loop) {
    constexpr std::int64_t rounds = 1000;
    const Stopwatch watch;
    const double work = loop(rounds);
    return work / watch.seconds();
}

CoreRates one_turn() {
    return {.f32_fma = rate_of_turn(peak_units_avx512().f32.loop),
            .bf16_dot = rate_of_turn(bf16_unit_avx512_bf16().loop),
            .bf16_tiles = best_isa() == Isa::amx ? rate_of_turn(bf16_unit_amx().loop) : 0};
}

CoreRates larger_of(const CoreRates& a, const CoreRates& b) {
    return {.f32_fma = std::max(a.f32_fma, b.f32_fma),
            .bf16_dot = std::max(a.bf16_dot, b.bf16_dot),
            .bf16_tiles = std::max(a.bf16_tiles, b.bf16_tiles)};
}

/// Whether a ratio lies too near the threshold to be a power of two.
bool is_near(double rate, const CoreRates& rates) {
    return std::abs(std::log2(rate / rates.f32_fma / threshold)) < 0.25;
}

}  // namespace

CoreRates rates_by_turns(FunctionRef<CoreRates()> turn) {
    constexpr int fewest = 40, most = 4000;
    CoreRates rates;
    for (int count = 0; count < fewest || (count < most && (is_near(rates.bf16_dot, rates) ||
                                                            is_near(rates.bf16_tiles, rates)));
         ++count)
        rates = larger_of(rates, turn());
    return rates;
}

CoreRates core_rates() {
    if (rates_by_order) return *rates_by_order;
    if (!has_bf16_dot()) return {};
    static const CoreRates measured = rates_by_turns([] { return one_turn(); });
    return measured;
}

void set_core_rates(std::optional<CoreRates> rates) { rates_by_order = rates; }

Isa fastest_isa(Isa best, const CoreRates& rates) {
    if (best < Isa::avx512_bf16) return best;
    const Isa vectors = rates.bf16_dot > threshold * rates.f32_fma ? Isa::avx512_bf16 : Isa::avx512;
    const bool tiles =
        best == Isa::amx && rates.bf16_tiles > std::max(rates.bf16_dot, threshold * rates.f32_fma);
    return tiles ? Isa::amx : vectors;
}

std::string reason_of_unit(Isa isa, const CoreRates& rates) {
    const double dot = rates.bf16_dot / rates.f32_fma, tiles = rates.bf16_tiles / rates.f32_fma;
    switch (bf16_unit(isa)) {
        case Bf16Unit::none:
            return "BF16 is widened to FP32: " +
                   (isa == Isa::avx512 && rates.bf16_dot > 0
                        ? fmt::format("vdpbf16ps has {:.1f} times FP32's rate here", dot)
                        : fmt::format("the level {} has no unit that multiplies it", name_of(isa)));
        case Bf16Unit::avx512_bf16:
            return fmt::format("BF16 is multiplied by vdpbf16ps, {:.1f} times FP32's rate here", dot);
        case Bf16Unit::amx:
            return fmt::format("BF16 is multiplied by tiles, {:.0f} times FP32's rate here", tiles);
    }
    throw InternalError("a BF16 unit outside of its enumeration");
}

}  // namespace mantissa::on_cpu
