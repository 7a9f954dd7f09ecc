// Which table of row kernels a level uses.
#include "mantissa/base/error.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels(Isa isa) {
    switch (isa) {
        case Isa::generic:
            return row_kernels_generic();
        case Isa::avx2:
            return row_kernels_avx2();
        case Isa::avx512:
        case Isa::amx:
            return bf16_unit(isa) == Bf16Unit::none ? row_kernels_avx512() : row_kernels_avx512_bf16();
    }
    throw InternalError("row_kernels: unknown instruction set");
}

}  // namespace mantissa::on_cpu
