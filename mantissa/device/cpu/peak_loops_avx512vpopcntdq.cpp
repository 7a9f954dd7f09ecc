// Binary products, the ones counted by vpopcntd.
#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

namespace {

struct Avx512B1Lanes : VectorLanes<std::uint32_t, 64, 32> {
    MANTISSA_PEAK_LANES Sums multiply_add(Words row, Words column, Sums sums) {
        return sums + reinterpret_cast<Sums>(_mm512_popcnt_epi32(reinterpret_cast<__m512i>(row ^ column)));
    }
};

}  // namespace

FormatUnit b1_unit_avx512_vpopcntdq() {
    return unit_of<Avx512B1Lanes, 16, 1>(3, "vpxord, vpopcntd and vpaddd, 512 bits");
}

}  // namespace mantissa::on_cpu
