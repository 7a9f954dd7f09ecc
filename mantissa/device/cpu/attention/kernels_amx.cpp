// Attention kernels for tensors of BF16 on AMX tiles. So far their tile instructions were only emulated
// (tile_emulator.h): right, and never timed.
#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::cpu {
namespace {

// For the rows that fill no tile; as for AVX512_BF16.
struct Tile {
    static constexpr int rows = 8;
    static constexpr int vectors = 2;
    MANTISSA_LANES Lanes::Float multiply_add(Lanes::Float a, Lanes::Float b, Lanes::Float c) {
        return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
};

}  // namespace
}  // namespace mantissa::cpu

// After the lanes and the tile, in terms of which they are written:
#include "mantissa/device/cpu/attention/operands_tiled.h"

namespace mantissa::cpu {
namespace {
using Operands = TiledOperands;
}  // namespace
}  // namespace mantissa::cpu

// The bodies are written in terms of all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::cpu {

const AttentionKernels& attention_kernels_amx() {
    static constexpr AttentionKernels table =
        table_of({.name = "amx", .head_unit = 32, .transpose = transpose_rows});
    return table;
}

}  // namespace mantissa::cpu
