// Attention kernels over the lanes of the row kernels.
#include "mantissa/device/cpu/rows/lanes_of_level.h"

namespace mantissa::inline v0::on_cpu {
namespace {

struct Tile {
#if defined(MANTISSA_LEVEL_avx512)
    // 32 registers: 8 x 2 of sums, two of b, one of a. Sixteen sums in flight cover the latency of 4 cycles
    // on two units twice; eight rows, since head sizes and blocks are multiples of eight.
    static constexpr int rows = 8;
    static constexpr int vectors = 2;
#elif defined(MANTISSA_LEVEL_avx2)
    // Sixteen registers of eight lanes: 6 x 1 of sums take twelve, the sixteen lanes of b two, and one is for
    // a.
    static constexpr int rows = 6;
    static constexpr int vectors = 1;
#else
    // Sixteen SSE registers of four lanes: 2 x 1 of sums take eight, and the sixteen lanes of b four.
    static constexpr int rows = 2;
    static constexpr int vectors = 1;
#endif
    MANTISSA_LANES Lanes::Float multiply_add(Lanes::Float a, Lanes::Float b, Lanes::Float c) {
#if defined(MANTISSA_LEVEL_generic)
        // Rounded twice: the library's fused function would be forty times slower.
        return Lanes::add(Lanes::multiply(a, b), c);
#else
        return Lanes::fma(a, b, c);
#endif
    }
};

}  // namespace
}  // namespace mantissa::on_cpu

// After the lanes and the tile, since it uses them:
#include "mantissa/device/cpu/attention/operands_widened.h"

namespace mantissa::inline v0::on_cpu {
namespace {
using Operands = WidenedOperands;
}  // namespace
}  // namespace mantissa::on_cpu

// The bodies use all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::inline v0::on_cpu {

const AttentionKernels& MANTISSA_OF_LEVEL(attention_kernels)() {
    static constexpr AttentionKernels table = table_of({.name = MANTISSA_LEVEL});
    return table;
}

}  // namespace mantissa::on_cpu
