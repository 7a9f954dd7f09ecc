// The joint loss for CPUs with AVX512_BF16, AMX among them.
#include "mantissa/device/cpu/loss/power_of_two_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Thirty-two numbers rounded to nearest even, in one instruction.
MANTISSA_LANES __m512i rounded(Lanes::Float first, Lanes::Float second) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}
MANTISSA_LANES void store_two(BF16* to, Lanes::Float first, Lanes::Float second) {
    _mm512_storeu_si512(to, rounded(first, second));
}
MANTISSA_LANES void stream_two(BF16* to, Lanes::Float first, Lanes::Float second) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded(first, second));
}

}  // namespace
}  // namespace mantissa::on_cpu

// The bodies are written in terms of these.
#include "mantissa/device/cpu/loss/body_exponentials.h"

namespace mantissa::inline v0::on_cpu {

const LossKernels& loss_kernels_avx512_bf16() {
    static constexpr LossKernels table = loss_table;
    return table;
}

}  // namespace mantissa::on_cpu
