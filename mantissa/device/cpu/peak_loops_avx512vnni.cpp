// Dot products of bytes, four at a time.
#include "mantissa/device/cpu/contraction/lanes_avx512vnni.h"
#include "mantissa/device/cpu/peak_body.h"

namespace mantissa::inline v0::on_cpu {

FormatUnit s8_unit_avx512_vnni() { return unit_of<Avx512S8Lanes, 16, s8_ones, 4>(1, "vpdpbusd, 512 bits"); }

}  // namespace mantissa::on_cpu
