// Narrowing one number at a time, and which kernel a level takes.
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/modes/narrowing.h"
#include "mantissa/numerics/integer_formats.h"

namespace mantissa::inline v0::on_cpu {

void narrow_to_s8_generic(const float* from, float factor, std::int8_t* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_s8(from[i] * factor);
}

NarrowToS8 narrow_to_s8(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return narrow_to_s8_generic;
        case Isa::avx2:
            return narrow_to_s8_avx2;
        case Isa::avx512:
        case Isa::amx:
            return narrow_to_s8_avx512;
    }
    throw InternalError("narrow_to_s8: unknown instruction set");
}

}  // namespace mantissa::on_cpu
