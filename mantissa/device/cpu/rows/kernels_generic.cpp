// Row kernels in plain C++, for any machine.
#include "mantissa/device/cpu/rows/lanes_generic.h"
// The lanes come first: the bodies are written in terms of them.
#include "mantissa/device/cpu/rows/body_table.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels_generic() {
    static constexpr RowKernels table = table_named("generic");
    return table;
}

}  // namespace mantissa::on_cpu
