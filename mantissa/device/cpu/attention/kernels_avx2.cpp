// Attention kernels for AVX2 with FMA.
#include "mantissa/device/cpu/rows/lanes_avx2.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// Sixteen registers of eight lanes: 6 x 1 of sums take twelve, the sixteen lanes of b two, and one is for a.
struct Tile {
    static constexpr int rows = 6;
    static constexpr int vectors = 1;
    MANTISSA_LANES Lanes::Float multiply_add(Lanes::Float a, Lanes::Float b, Lanes::Float c) {
        return Lanes::fma(a, b, c);
    }
};

}  // namespace
}  // namespace mantissa::on_cpu

// After the lanes and the tile, in terms of which they are written:
#include "mantissa/device/cpu/attention/operands_widened.h"

namespace mantissa::inline v0::on_cpu {
namespace {
using Operands = WidenedOperands;
}  // namespace
}  // namespace mantissa::on_cpu

// The bodies are written in terms of all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::inline v0::on_cpu {

const AttentionKernels& attention_kernels_avx2() {
    static constexpr AttentionKernels table = table_of({.name = "avx2"});
    return table;
}

}  // namespace mantissa::on_cpu
