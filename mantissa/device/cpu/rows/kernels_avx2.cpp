// Row kernels for AVX2 and FMA.
#include "mantissa/device/cpu/rows/lanes_avx2.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels_avx2() {
    static constexpr RowKernels table = table_named("avx2");
    return table;
}

}  // namespace mantissa::on_cpu
