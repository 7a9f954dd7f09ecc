// Attention kernels in plain C++, for any machine.
#include "mantissa/device/cpu/rows/lanes_generic.h"

namespace mantissa::inline v0::on_cpu {
namespace {

// Sixteen SSE registers of four lanes: 2 x 1 of sums take eight, and the sixteen lanes of b four.
struct Tile {
    static constexpr int rows = 2;
    static constexpr int vectors = 1;
    /// Rounded twice: the library's fused function would be forty times slower.
    MANTISSA_LANES Lanes::Float multiply_add(Lanes::Float a, Lanes::Float b, Lanes::Float c) {
        return Lanes::add(Lanes::multiply(a, b), c);
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

const AttentionKernels& attention_kernels_generic() {
    static constexpr AttentionKernels table = table_of({.name = "generic"});
    return table;
}

}  // namespace mantissa::on_cpu
