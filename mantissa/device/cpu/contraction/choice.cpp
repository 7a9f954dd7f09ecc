#include "mantissa/device/cpu/contraction/choice.h"

#include "mantissa/base/error.h"

namespace mantissa::cpu {

namespace {

bool both_bf16(const ContractionProblem& problem) {
    return problem.a.dtype == DType::bf16 && problem.b.dtype == DType::bf16;
}

/// The panels that leave fewer columns empty; 64 columns, a head of attention, are two of 32 or one and a
/// third of 48. Where that is the same, narrow ones for an output of BF16, whose rows of 32 are whole lines
/// and may go past the caches, and wide ones for FP32.
PanelWidth width_for(const ContractionProblem& problem) {
    const auto padded = [n = problem.n](std::int64_t width) { return (n + width - 1) / width * width; };
    const bool narrow = problem.out.dtype == DType::bf16 ? padded(32) <= padded(48) : padded(32) < padded(48);
    return narrow ? PanelWidth::narrow : PanelWidth::wide;
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
            if (unit == Bf16Unit::avx512_bf16) return contraction_kernels_avx512_bf16(width_for(problem));
            return contraction_kernels_avx512(width_for(problem));
    }
    throw InternalError("an instruction-set level outside of its enumeration");
}

}  // namespace mantissa::cpu
