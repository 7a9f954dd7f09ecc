#include "mantissa/device/cpu/contraction/convert.h"

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Small products come first: what is added while the sum is small is rounded little.
/// Only hi meets hi as it is. Elsewhere an infinite hi counts as zero: infinity times a lo of zero would be
/// NaN, where FP32 gives infinity.
Conversion conversion_of(Products products, const ConvertKernels& convert) {
    switch (products) {
        case Products::tf32_rounded:
            return {.convert = convert.tf32};
        case Products::fp16_widened:
            return {.convert = convert.widen_fp16, .source = DType::f16};
        case Products::bf16x3:
            return {.convert = convert.split_fp32,
                    .part = DType::bf16,
                    .parts = 3,
                    .terms = 3,
                    .a = {1, 2, 0},
                    .b = {2, 1, 0}};
        case Products::fp16x4:
            return {.convert = convert.split_fp16,
                    .source = DType::f16,
                    .part = DType::bf16,
                    .parts = 3,
                    .terms = 4,
                    .a = {1, 1, 2, 0},
                    .b = {1, 2, 1, 0}};
    }
    throw InternalError("a kind of products outside of its enumeration");
}

}  // namespace

const ConvertKernels& convert_kernels(Isa isa) {
    if (isa == Isa::generic) return convert_kernels_generic();
    return isa == Isa::avx2 ? convert_kernels_avx2() : convert_kernels_avx512();
}

ContractionKernels converted(ContractionKernels base, Products products, const ConvertKernels& convert) {
    base.conversion = conversion_of(products, convert);
    const std::int64_t unit = std::max<std::int64_t>(8, base.depth_unit);
    base.most_depth = std::max(unit, base.most_depth / base.conversion.terms / unit * unit);
    base.whole_depth = base.whole_depth / base.conversion.terms / unit * unit;
    base.multiply_row = {};
    const std::size_t part = base.conversion.part == DType::bf16 ? 1 : 0;
    check(base.pack_a[0][part] && base.pack_b[0][part], "the kernels pack the parts of converted operands");
    return base;
}

}  // namespace mantissa::on_cpu
