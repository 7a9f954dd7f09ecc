// Device memory filled with NaN: a read of unwritten memory shows in a result.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::testing {

inline std::unique_ptr<DeviceMemory> nan_memory(Device& device, std::int64_t bytes) {
    std::unique_ptr<DeviceMemory> memory = device.allocate(static_cast<std::size_t>(bytes), "arena");
    device.copy_to_device(memory->data(), std::vector<std::byte>(memory->size(), std::byte{0xff}));
    return memory;
}

}  // namespace mantissa::testing
