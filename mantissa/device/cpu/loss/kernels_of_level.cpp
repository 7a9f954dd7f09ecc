// The fused linear cross-entropy over the lanes of the row kernels.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first, since the files below use them.
#if defined(MANTISSA_LEVEL_generic) || defined(MANTISSA_LEVEL_avx2)
#include "mantissa/numerics/exp2_body.h"
#else
#include "mantissa/numerics/elementary_body.h"
#endif

namespace mantissa::inline v0::on_cpu {
namespace {

#if defined(MANTISSA_LEVEL_generic) || defined(MANTISSA_LEVEL_avx2)
/// 2^y, where no instruction scales by powers of two. A power that is too small for a normal number is taken
/// for 2^-126, which is nothing beside any sum.
MANTISSA_LONG_LANES Lanes::Float power_of_two(Lanes::Float y) {
    constexpr Lanes operations{};
    return elementary::exp2_inside(operations, Lanes::maximum(Lanes::constant(elementary::exp2_least), y));
}
#else
/// 2^floor(y) times 2^f, f between 0 and 1, by a polynomial: the minimax fit of relative error (Remez
/// exchange), its coefficients rounded as in elementary_body.h. Error 7.6e-8. NaN and infinities come
/// through; smaller numbers are 0.
MANTISSA_LANES Lanes::Float power_of_two(Lanes::Float y) {
    static constexpr float series[] = {0x1.fffffep-1f, 0x1.62e4eap-1f, 0x1.ebd6c2p-3f,
                                       0x1.c949b8p-5f, 0x1.26bbd2p-7f, 0x1.ebaf42p-10f};
    constexpr Lanes operations{};
    const Lanes::Float f = _mm512_reduce_ps(y, 0x9);  // y - floor(y)
    return _mm512_scalef_ps(elementary::polynomial(operations, series, f), y);
}
#endif

#if defined(MANTISSA_LEVEL_generic)
MANTISSA_LANES bool any(Lanes::Mask mask) {
    const Lanes::I4 set = (mask.part[0] | mask.part[1]) | (mask.part[2] | mask.part[3]);
    return (set[0] | set[1] | set[2] | set[3]) != 0;
}
#elif defined(MANTISSA_LEVEL_avx2)
MANTISSA_LANES bool any(Lanes::Mask mask) {
    return _mm256_movemask_ps(_mm256_or_ps(mask.low, mask.high)) != 0;
}
#else
MANTISSA_LANES bool any(Lanes::Mask mask) { return mask != 0; }
#endif

#if defined(MANTISSA_LEVEL_avx512bf16)
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
#endif

}  // namespace
}  // namespace mantissa::on_cpu

// The bodies use these.
#include "mantissa/device/cpu/loss/body_exponentials.h"

namespace mantissa::inline v0::on_cpu {

const LossKernels& MANTISSA_OF_LEVEL(loss_kernels)() {
    static constexpr LossKernels table = {
        .exponentials = exponentials, .token_totals = token_totals, .logit_gradients = logit_gradients};
    return table;
}

}  // namespace mantissa::on_cpu
