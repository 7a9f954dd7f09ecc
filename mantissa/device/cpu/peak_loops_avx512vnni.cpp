// Dot products of bytes, four at a time.
#include "mantissa/device/cpu/contraction/lanes_avx512vnni.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

double s8_loop_avx512_vnni(std::int64_t rounds) {
    return 4 * multiply_add_loop<Avx512S8Lanes, 16>(rounds, 0x01010101);
}

}  // namespace mantissa::on_cpu
