// Conversions of operands while they are packed: one table a level of instructions, all with the same bits.
//
// A number split into hi and lo keeps FP32's range. The first part is rounded to nearest, toward zero where
// that would overflow. Where it is infinite or NaN the other is zero, so that products are FP32's.
#pragma once

#include "mantissa/device/cpu/contraction/kernels.h"

namespace mantissa::inline v0::on_cpu {

struct ConvertKernels {
    ConvertKernel tf32;        ///< FP32 -> FP32 with TF32's 10 bits of fraction
    ConvertKernel widen_fp16;  ///< FP16 -> FP32
    ConvertKernel split_fp32;  ///< FP32 -> two BF16
    ConvertKernel split_fp16;  ///< FP16 -> two BF16, exactly
};

/// The table of a level.
const ConvertKernels& convert_kernels(Isa isa);

const ConvertKernels& convert_kernels_generic();
const ConvertKernels& convert_kernels_avx2();
const ConvertKernels& convert_kernels_avx512();
const ConvertKernels& convert_kernels_avx512bf16();

/// The parts of multiplications of converted operands; docs/numerics.md has the errors.
enum class Products : std::uint8_t {
    tf32_rounded,  ///< one product of FP32 kernels
    fp16_widened,  ///< one product of FP32 kernels
    bf16x3,        ///< hi hi + hi lo + lo hi, on tiles
    fp16x4         ///< all products of FP16's two parts, on tiles: exact
};

/// `base` made to multiply operands of another kind.
ContractionKernels converted(ContractionKernels base, Products products, const ConvertKernels& convert);

}  // namespace mantissa::on_cpu
