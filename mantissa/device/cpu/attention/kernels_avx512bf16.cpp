// Attention kernels for tensors of BF16 on CPUs with AVX512_BF16: products of pairs, summed in FP32.
#include "mantissa/device/cpu/attention/tile_paired.h"

// After the lanes and the tile, since it uses them:
#include "mantissa/device/cpu/attention/operands_paired.h"

namespace mantissa::inline v0::on_cpu {
namespace {
using Operands = PairedOperands;
}  // namespace
}  // namespace mantissa::on_cpu

// The bodies use all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::inline v0::on_cpu {

const AttentionKernels& attention_kernels_avx512_bf16() {
    static constexpr AttentionKernels table = table_of({.name = "avx512_bf16", .head_unit = 2});
    return table;
}

}  // namespace mantissa::on_cpu
