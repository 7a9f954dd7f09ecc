// Dot products of BF16 pairs.
#include "mantissa/device/cpu/contraction/lanes_avx512bf16.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

FormatUnit bf16_unit_avx512_bf16() {
    return unit_of<Avx512Bf16Lanes, 16, 0x3f803f80>(1, "vdpbf16ps, 512 bits");
}

}  // namespace mantissa::on_cpu
