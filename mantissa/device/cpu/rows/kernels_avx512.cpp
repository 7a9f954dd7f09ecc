// Row kernels for AVX-512 (F, BW, DQ, VL).
#include "mantissa/device/cpu/rows/lanes_avx512.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels_avx512() {
    static constexpr RowKernels table = table_named("avx512");
    return table;
}

}  // namespace mantissa::on_cpu
