// Parts of an operand that is stored as codes and scales, as numbers: packing asks for them. The same bits
// at every level.
#pragma once

#include "mantissa/numerics/coded_weights.h"

namespace mantissa::inline v0::on_cpu {

void widen_codes_generic(const WidenedPart& part);
void widen_codes_avx2(const WidenedPart& part);
void widen_codes_avx512(const WidenedPart& part);

}  // namespace mantissa::on_cpu
