// Attention kernels for tensors of BF16 on AMX tiles.

// The vectors are for rows that fill no tile of the unit.
#include "mantissa/device/cpu/attention/tile_paired.h"

// After the lanes and the tile, since it uses them:
#include "mantissa/device/cpu/attention/operands_tiled.h"

namespace mantissa::inline v0::on_cpu {
namespace {
using Operands = TiledOperands;
}  // namespace
}  // namespace mantissa::on_cpu

// The bodies use all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::inline v0::on_cpu {

const AttentionKernels& attention_kernels_amx() {
    static constexpr AttentionKernels table = table_of({.name = "amx", .head_unit = 32, .pack = pack_rows});
    return table;
}

}  // namespace mantissa::on_cpu
