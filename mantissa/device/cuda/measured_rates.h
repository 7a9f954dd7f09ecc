// The rates that a GPU reaches: copies within its memory, and products of large matrices, between events.
#pragma once

#include <span>

#include "mantissa/device/device.h"

namespace mantissa::inline v0::on_cuda {

/// Seconds of the fastest of a few runs of one step.
double fastest_run(Device& device, const BoundStep& step);
/// Bytes per second, read and written, of a copy within `scratch`, which is written over.
double measured_copy(Device& device, std::span<std::byte> scratch);

/// The fastest of a few runs each. `scratch` is the device's memory and is written over.
Peaks measured_rates(Device& device, std::span<std::byte> scratch);

}  // namespace mantissa::on_cuda
