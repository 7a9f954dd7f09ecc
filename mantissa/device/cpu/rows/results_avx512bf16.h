// Rounding to BF16 by the instruction of AVX512_BF16, for the sources compiled for it: one in place of
// eleven. It reads subnormals as zero, whatever the thread does, so it is for results of arithmetic alone,
// among which threads that flush subnormals leave none: both ways then give the same bits. Included before
// the bodies.
#pragma once

#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

MANTISSA_LANES void store_results(BF16* to, Lanes::Float a, Lanes::Float b, bool stream) {
    const auto line = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
    if (stream)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    else
        _mm512_storeu_si512(to, line);
}

MANTISSA_LANES void store_result(BF16* to, Lanes::Float a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
}

}  // namespace
}  // namespace mantissa::on_cpu
