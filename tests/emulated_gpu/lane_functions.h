// The functions of instructions on registers alone, for the 32 lanes of a warp at once: arrays of a
// register's numbers, lane after lane. Lanes that do not take part are computed, too, and thrown away by the
// caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mantissa::inline v0::cuda::ptx {

constexpr int warp_lanes = 32;

struct Sources {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const std::byte* c = nullptr;
    const std::byte* e = nullptr;
    std::uint32_t number = 0;  ///< of the instruction, such as lop3's table
};

/// Writes the 32 results to `d`, which may be one of the sources.
using LaneFunction = void (*)(std::byte* d, const Sources& sources);
/// A comparison: one bit a lane.
using LaneTest = std::uint32_t (*)(const Sources& sources);

/// Where a list of functions goes: a plain pointer, so that files of one instruction set share no code.
struct LaneSink {
    void* to = nullptr;
    void (*function)(void* to, const char* op, const char* type, LaneFunction function) = nullptr;
    void (*test)(void* to, const char* op, const char* type, LaneTest test) = nullptr;
};

void list_lane_functions_generic(const LaneSink& sink);
void list_lane_functions_avx2(const LaneSink& sink);
/// Those that call the C library: approximations at their stated error, 16-bit arithmetic.
void list_lane_approximations(const LaneSink& sink);
void list_lane_halves(const LaneSink& sink);

/// "add.ftz.f32"; null if there is none.
LaneFunction lane_function(const std::string& name);
/// "lt.ftz.f32"; null if there is none.
LaneTest lane_test(const std::string& name);
/// A function, and the number of the instructions that run it.
struct LaneConversion {
    LaneFunction lanes = nullptr;
    std::uint32_t number = 0;
};
/// A conversion: types as in the instruction's text. `rounding`: "", "rn", "rz", "rm", "rp", "rna", "rni",
/// "rzi", "rmi", "rpi". A null function if there is none.
LaneConversion lane_conversion(const std::string& to, const std::string& from, const std::string& rounding,
                               bool flush, bool saturate, bool relu);

}  // namespace mantissa::cuda::ptx
