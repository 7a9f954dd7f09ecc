// The standard epilogue for AVX-512 with AVX512_BF16, AMX among them. Sums are made by arithmetic, which
// flushes subnormals where kernels run; so the instruction that takes them for zero gives the bits of all.
#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::cpu {
namespace {

/// Thirty-two numbers rounded to nearest even, in one instruction.
MANTISSA_LANES void store_line(BF16* to, Lanes::Float first, Lanes::Float second, bool stream) {
    const auto line = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
    if (stream)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    else
        _mm512_storeu_si512(to, line);
}

}  // namespace
}  // namespace mantissa::cpu

// The body is written in terms of these.
#include "mantissa/device/cpu/contraction/epilogue_body.h"

namespace mantissa::cpu {

void finish_block_avx512bf16(const EpilogueBlock& block) { finish_block(block); }

}  // namespace mantissa::cpu
