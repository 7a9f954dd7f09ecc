// Row kernels for CPUs with AVX512_BF16, AMX among them: those of AVX-512, but for the rounding of results to
// BF16.
#include "mantissa/device/cpu/rows/results_avx512bf16.h"
// The bodies are written in terms of these.
#include "mantissa/device/cpu/rows/body_table.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels_avx512_bf16() {
    static constexpr RowKernels table = table_named("avx512_bf16");
    return table;
}

}  // namespace mantissa::on_cpu
