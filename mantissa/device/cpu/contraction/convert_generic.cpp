// Conversions of operands for the level generic.
#include "mantissa/device/cpu/contraction/convert_body.h"

namespace mantissa::inline v0::on_cpu {

const ConvertKernels& convert_kernels_generic() {
    static constexpr ConvertKernels table = convert_table;
    return table;
}

}  // namespace mantissa::on_cpu
