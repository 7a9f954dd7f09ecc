// The rates that a GPU reaches: copies within its memory, and products of large matrices, between events.
#pragma once

#include <span>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/device.h"
#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0::on_cuda {

/// Seconds of the fastest of a few runs of one step.
double fastest_run(Device& device, const BoundStep& step);
/// Bytes per second, read and written, of a copy within `scratch`, which is written over.
double measured_copy(Device& device, std::span<std::byte> scratch);

/// The fastest of a few runs of each. `scratch` is the device's memory and is written over.
Peaks measured_rates(Device& device, std::span<std::byte> scratch);

struct GpuFacts {
    int capability = 0;  ///< 80 for 8.0
    int multiprocessors = 0;
    double clock = 0;   ///< cycles per second
    double memory = 0;  ///< bytes per second, of the interface
};

/// Peaks of the formats: matrices by mma.sync with operands in registers, theoretical beside measured. Takes
/// about a second.
FormatPeaks measured_formats(Device& device, Context& context, const GpuFacts& facts);

}  // namespace mantissa::on_cuda
