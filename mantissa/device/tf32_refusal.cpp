#include "mantissa/device/tf32_refusal.h"

#include <cstdlib>
#include <string_view>

namespace mantissa::inline v0 {

std::string tf32_refusal() {
    const char* const value = std::getenv("NVIDIA_TF32_OVERRIDE");
    return value && std::string_view(value) == "0" ? "NVIDIA_TF32_OVERRIDE=0 forbids TF32" : "";
}

}  // namespace mantissa
