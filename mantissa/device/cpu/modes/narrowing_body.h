// The loop of narrowing.h over the lanes of a level, which turn 16 numbers at a time. In an anonymous
// namespace, so that each source keeps its own copy, compiled for its own level.
#pragma once

#include <cstdint>

namespace mantissa::inline v0::on_cpu {

namespace {

/// The last, fewer numbers stand in a block of their own, zeros behind them, and what becomes of it is
/// copied.
template <class Lanes>
void narrow_in_steps(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    constexpr std::int64_t at_once = 16;
    const auto step = [factor](const float* x, std::int8_t* out) {
        Lanes::store_bytes(out, Lanes::whole_bytes(x, factor));
    };
    std::int64_t done = 0;
    for (; done + at_once <= count; done += at_once) step(from + done, to + done);
    const std::int64_t rest = count - done;
    if (rest == 0) return;
    float last[at_once] = {};
    std::int8_t narrowed[at_once];
    for (std::int64_t i = 0; i < rest; ++i) last[i] = from[done + i];
    step(last, narrowed);
    for (std::int64_t i = 0; i < rest; ++i) to[done + i] = narrowed[i];
}

}  // namespace

}  // namespace mantissa::on_cpu
