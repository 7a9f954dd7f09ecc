#include "mantissa/device/cpu/contraction/convert.h"

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/prepared.h"
#include "mantissa/device/cpu/core_rates.h"

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
        // Both parts together are as deep as one chunk of BF16.
        base.max_depth /= base.conversion.parts;
        base.whole_depth /= base.conversion.parts;
        base.resident_depth = std::max(
            base.depth_unit, base.resident_depth / base.conversion.parts / base.depth_unit * base.depth_unit);
    }
    const std::size_t part = base.conversion.part == DType::bf16 ? 1 : 0;
    check(base.pack_a[0][part] && base.pack_b[0][part], "the kernels pack the parts of converted operands");
    return base;
}

namespace {

/// The panels that leave fewer columns empty; 64 columns, a head of attention, are two of 32 or one and a
/// third of 48. At a tie, narrow panels for an output of BF16, whose rows of 32 are whole lines and may go
/// past the caches, and wide ones for FP32.
PanelWidth width_for(const ContractionProblem& problem) {
    const auto padded = [n = problem.n](std::int64_t width) { return align_up(n, width); };
    const bool narrow = problem.out.dtype == DType::bf16 ? padded(32) <= padded(48) : padded(32) < padded(48);
    return narrow ? PanelWidth::narrow : PanelWidth::wide;
}

/// Kernels for FP32 vectors: two operands of FP32, or BF16 ones widened.
ContractionKernels vector_kernels(const ContractionProblem& problem, Isa isa) {
    if (isa >= Isa::avx512) return contraction_kernels_avx512(width_for(problem));
    return isa == Isa::avx2 ? contraction_kernels_avx2() : contraction_kernels_generic();
}

/// Kernels of the unit for two operands of BF16.
ContractionKernels unit_kernels(const ContractionProblem& problem, Bf16Unit unit) {
    return unit == Bf16Unit::amx ? contraction_kernels_amx()
                                 : contraction_kernels_avx512_bf16(width_for(problem));
}

/// The choice by types and columns.
ContractionKernels product_kernels(const ContractionProblem& problem, Isa isa) {
    const Bf16Unit unit = bf16_unit(isa);
    const bool fp16 = problem.a.dtype == DType::f16;
    if (problem.multiply == Multiply::tf32 || fp16) {
        if (splitting_pays(unit))
            return converted(unit_kernels(problem, unit), fp16 ? Products::fp16x4 : Products::bf16x3,
                             convert_kernels(isa));
        return converted(vector_kernels(problem, isa), fp16 ? Products::fp16_widened : Products::tf32_rounded,
                         convert_kernels(isa));
    }
    const bool both_bf16 = problem.a.dtype == DType::bf16 && problem.b.dtype == DType::bf16;
    return both_bf16 && unit != Bf16Unit::none ? unit_kernels(problem, unit) : vector_kernels(problem, isa);
}

}  // namespace

ContractionKernels kernels_of(const ContractionProblem& problem, Isa isa) {
    ContractionKernels kernels = product_kernels(problem, isa);
    kernels.widen = of_level(isa, widen_codes_generic, widen_codes_avx2, widen_codes_avx512);
    return kernels;
}

ContractionKernels byte_kernels_of(std::int64_t rows, Isa isa) {
    if (isa == Isa::generic) return byte_kernels_generic();
    if (isa == Isa::amx && rows > max_rows_in_place) return byte_kernels_amx();
    return has_byte_dots(isa) ? byte_kernels_avx512_vnni() : byte_kernels_avx2();
}

}  // namespace mantissa::on_cpu
