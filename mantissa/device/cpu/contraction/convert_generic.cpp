// Conversions of operands for the level generic.
#include "mantissa/device/cpu/contraction/convert_body.h"

namespace mantissa::cpu {

const ConvertKernels& convert_kernels_generic() {
    static constexpr ConvertKernels table = convert_table;
    return table;
}

}  // namespace mantissa::cpu
