// Row kernels for CPUs with AVX512_BF16, AMX among them: those of AVX-512, but for the rounding of results to
// BF16.
#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::cpu {
namespace {

/// One instruction in place of eleven, which reads subnormals as zero, whatever the thread does.
MANTISSA_LANES void store_results(BF16* to, Lanes::Float a, Lanes::Float b, bool stream) {
    const __m512i line = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
    if (stream)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    else
        _mm512_storeu_si512(to, line);
}

}  // namespace
}  // namespace mantissa::cpu

// The bodies are written in terms of these.
#include "mantissa/device/cpu/rows/body_table.h"

namespace mantissa::cpu {

const RowKernels& row_kernels_avx512_bf16() {
    static constexpr RowKernels table = table_named("avx512_bf16");
    return table;
}

}  // namespace mantissa::cpu
