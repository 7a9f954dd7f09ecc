// Binary products, the ones counted by vpopcntd.
#include "mantissa/device/cpu/modes/lanes_avx512.h"
#include "mantissa/device/cpu/peak_body.h"
#include "mantissa/device/cpu/peak_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Bits, 32 to a word, their ones counted by vpopcntd: the twin of GenericB1Lanes.
struct Avx512B1Lanes : Avx512IntegerLanes {
    static constexpr int depth_of_word = 32;
    MANTISSA_MODE_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return _mm512_add_epi32(sums, _mm512_popcnt_epi32(_mm512_xor_si512(row, column)));
    }
};

}  // namespace

double b1_loop_avx512_vpopcntdq(std::int64_t rounds) {
    return multiply_add_loop<Avx512B1Lanes, 16>(rounds, 1);
}

}  // namespace mantissa::on_cpu
