// Attention kernels for AVX-512 (F, BW, DQ, VL).
#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// 32 registers: 8 x 2 of sums, two of b, one of a. Sixteen sums in flight cover the latency of 4 cycles on
// two units twice; eight rows, since head sizes and blocks are multiples of eight.
struct Tile {
    static constexpr int rows = 8;
    static constexpr int vectors = 2;
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

const AttentionKernels& attention_kernels_avx512() {
    static constexpr AttentionKernels table = table_of({.name = "avx512"});
    return table;
}

}  // namespace mantissa::on_cpu
