// Binary products, the ones counted by vpopcntd.
#include "mantissa/device/cpu/modes/lanes_avx512vpopcntdq.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

double b1_loop_avx512_vpopcntdq(std::int64_t rounds) {
    return multiply_add_loop<Avx512B1Lanes, 16>(rounds, 1);
}

}  // namespace mantissa::on_cpu
