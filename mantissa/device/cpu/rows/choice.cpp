// The table of row kernels that a machine uses.
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels(Isa isa) {
    return of_level(isa, row_kernels_generic, row_kernels_avx2, row_kernels_avx512, row_kernels_avx512bf16)();
}

}  // namespace mantissa::on_cpu
