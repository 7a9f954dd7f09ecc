// The standard epilogue for AVX-512 with AVX512_BF16, AMX among them.
#include "mantissa/device/cpu/rows/results_avx512bf16.h"
// The body is written in terms of these.
#include "mantissa/device/cpu/contraction/epilogue_body.h"

namespace mantissa::inline v0::on_cpu {

void finish_block_avx512bf16(const EpilogueBlock& block) { finish_block(block); }

}  // namespace mantissa::on_cpu
