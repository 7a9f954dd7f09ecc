// Narrowing one number at a time, and which kernels a level takes.
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/numerics/integer_formats.h"

namespace mantissa::inline v0::on_cpu {

namespace {

void narrow_to_s8(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_s8(from[i] * factor);
}

void narrow_to_s4(const float* from, float factor, std::uint8_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (i % 2 == 0) to[i / 2] = 0;
        set_s4(to, i, to_s4(from[i] * factor));
    }
}

void narrow_to_b1(const float* from, std::uint8_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        if (i % 8 == 0) to[i / 8] = 0;
        set_b1(to, i, to_b1(from[i]));
    }
}

}  // namespace

const NarrowingKernels& narrowing_kernels_generic() {
    static constexpr NarrowingKernels kernels{narrow_to_s8, narrow_to_s4, narrow_to_b1};
    return kernels;
}

const NarrowingKernels& narrowing_kernels(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return narrowing_kernels_generic();
        case Isa::avx2:
            return narrowing_kernels_avx2();
        case Isa::avx512:
        case Isa::amx:
            return narrowing_kernels_avx512();
    }
    throw InternalError("narrowing_kernels: unknown instruction set");
}

}  // namespace mantissa::on_cpu
