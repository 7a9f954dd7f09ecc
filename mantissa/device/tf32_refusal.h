// Whether FP32 may be multiplied as TF32 at all, on any device.
#pragma once

#include <string>

namespace mantissa::inline v0 {

/// Why FP32 may not be; empty if it may. NVIDIA's libraries run FP32 where NVIDIA_TF32_OVERRIDE is 0; here
/// nothing runs under the name of TF32.
std::string tf32_refusal();

}  // namespace mantissa
