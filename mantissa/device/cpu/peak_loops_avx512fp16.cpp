// Multiply-adds of FP16 numbers. Compiled everywhere, but so far never run: the machine it was written on has
// none.
#include "mantissa/device/cpu/modes/lanes_avx512fp16.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

double f16_loop_avx512_fp16(std::int64_t rounds) {
    constexpr std::uint16_t f16_one = 0x3c00;
    return multiply_add_loop<Avx512F16NativeLanes, 16>(rounds, f16_one);
}

}  // namespace mantissa::on_cpu
