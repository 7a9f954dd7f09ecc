// The standard epilogue for AVX2.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: the body is written in terms of them.
#include "mantissa/device/cpu/contraction/epilogue_body.h"

namespace mantissa::inline v0::on_cpu {

void finish_block_avx2(const EpilogueBlock& block) { finish_block(block); }

}  // namespace mantissa::on_cpu
