// The CPU in the part of a device that is elsewhere and late, whatever the environment asks for.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "mantissa/device/cpu/cpu_device.h"

namespace mantissa::testing {

inline std::unique_ptr<Device> discrete_device(int threads) {
    constexpr const char* variable = "MANTISSA_EMULATE_DISCRETE";
    const char* const before = std::getenv(variable);
    const std::string kept = before ? before : "";
    ::setenv(variable, "1", 1);
    auto device = make_cpu_device({.threads = threads});
    ::setenv(variable, kept.c_str(), 1);  // empty is as good as unset
    return device;
}

}  // namespace mantissa::testing
