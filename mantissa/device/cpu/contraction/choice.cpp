#include "mantissa/device/cpu/contraction/choice.h"

#include "mantissa/base/error.h"

namespace mantissa::cpu {

namespace {

bool both_bf16(const ContractionProblem& problem) {
    return problem.a.dtype == DType::bf16 && problem.b.dtype == DType::bf16;
}

/// The panels that leave fewer columns empty; 64 columns, a head of attention, are two of 32 or one and a
/// third of 48.
PanelWidth width_for(std::int64_t columns) {
    const auto padded = [columns](std::int64_t width) { return (columns + width - 1) / width * width; };
    return padded(32) < padded(48) ? PanelWidth::narrow : PanelWidth::wide;
}

}  // namespace

ContractionKernels kernels_of(const ContractionProblem& problem, Isa isa) {
    const Bf16Unit unit = both_bf16(problem) ? bf16_unit(isa) : Bf16Unit::none;
    switch (isa) {
        case Isa::generic:
            return contraction_kernels_generic();
        case Isa::avx2:
            return contraction_kernels_avx2();
        case Isa::avx512:
        case Isa::amx:
            if (unit == Bf16Unit::amx) return contraction_kernels_amx();
            if (unit == Bf16Unit::avx512_bf16) return contraction_kernels_avx512_bf16(width_for(problem.n));
            return contraction_kernels_avx512(width_for(problem.n));
    }
    throw InternalError("an instruction-set level outside of its enumeration");
}

}  // namespace mantissa::cpu
