// Attention kernels for tensors of BF16 on CPUs with AVX512_BF16: products of pairs, summed in FP32.
#include "mantissa/device/cpu/rows/lanes_avx512.h"

namespace mantissa::cpu {
namespace {

// As for AVX-512; a multiply-add takes two elements, so that the same tile does twice the work.
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
#include "mantissa/device/cpu/attention/operands_paired.h"

namespace mantissa::cpu {
namespace {
using Operands = PairedOperands;
}  // namespace
}  // namespace mantissa::cpu

// The bodies are written in terms of all three.
#include "mantissa/device/cpu/attention/body_table.h"

namespace mantissa::cpu {

const AttentionKernels& attention_kernels_avx512_bf16() {
    static constexpr AttentionKernels table = table_of({.name = "avx512_bf16", .head_unit = 2});
    return table;
}

}  // namespace mantissa::cpu
