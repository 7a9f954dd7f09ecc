// The lanes of the level that a source is compiled for. The build compiles a source NAME_of_level.cpp once
// for each level and defines, for AVX2: MANTISSA_LEVEL_avx2, MANTISSA_LEVEL as "avx2", MANTISSA_OF_LEVEL(f)
// as f_avx2.
#pragma once

#if defined(MANTISSA_LEVEL_avx512bf16) || defined(MANTISSA_LEVEL_avx512)
#include "mantissa/device/cpu/rows/lanes_avx512.h"
#elif defined(MANTISSA_LEVEL_avx2)
#include "mantissa/device/cpu/rows/lanes_avx2.h"
#else
#include "mantissa/device/cpu/rows/lanes_generic.h"
#endif

#if defined(MANTISSA_LEVEL_avx512bf16)
// Rounding to BF16 by the instruction of AVX512_BF16: one in place of eleven. It reads subnormals as zero,
// whatever the thread does, so it is for results of arithmetic alone, among which threads that flush
// subnormals leave none: both ways then give the same bits.
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
#endif
