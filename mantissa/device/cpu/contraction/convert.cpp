#include "mantissa/device/cpu/contraction/convert.h"

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::on_cpu {

namespace {

Conversion conversion_of(Products products, const ConvertKernels& convert) {
    switch (products) {
        case Products::tf32_rounded:
            return {.convert = convert.tf32};
        case Products::fp16_widened:
            return {.convert = convert.widen_fp16, .source = DType::f16};
        case Products::bf16x3:
            return {.convert = convert.split_fp32, .part = DType::bf16, .parts = 2};
        case Products::fp16x4:
            return {.convert = convert.split_fp16, .source = DType::f16, .part = DType::bf16, .parts = 2};
    }
    throw InternalError("a kind of products outside of its enumeration");
}

}  // namespace

const ConvertKernels& convert_kernels(Isa isa) {
    return of_level(isa, convert_kernels_generic, convert_kernels_avx2, convert_kernels_avx512,
                    convert_kernels_avx512bf16)();
}

ContractionKernels converted(ContractionKernels base, Products products, const ConvertKernels& convert) {
    base.conversion = conversion_of(products, convert);
    base.multiply_row = {};
    if (base.conversion.parts > 1) {
        base.multiply = products == Products::bf16x3 ? base.multiply_by_three : base.multiply_by_four;
        check(base.multiply, "the kernels multiply operands in two parts");
        // Both parts of as much as is one chunk of BF16.
        base.max_depth /= base.conversion.parts;
        base.whole_depth /= base.conversion.parts;
        base.resident_depth = std::max(
            base.depth_unit, base.resident_depth / base.conversion.parts / base.depth_unit * base.depth_unit);
    }
    const std::size_t part = base.conversion.part == DType::bf16 ? 1 : 0;
    check(base.pack_a[0][part] && base.pack_b[0][part], "the kernels pack the parts of converted operands");
    return base;
}

}  // namespace mantissa::on_cpu
