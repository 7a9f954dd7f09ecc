// Dot products of BF16 pairs.
#include "mantissa/device/cpu/contraction/lanes_avx512bf16.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

double dot_loop_avx512_bf16(std::int64_t rounds) {
    constexpr std::uint32_t two_ones = 0x3f803f80;
    return multiply_add_loop<Avx512Bf16Lanes, 16>(rounds, two_ones);
}

}  // namespace mantissa::on_cpu
