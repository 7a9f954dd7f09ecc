// Peaks of a GPU's formats: matrices by mma.sync with operands in registers, theoretical beside measured.
#pragma once

#include <cstdint>

#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0::on_cuda {

struct GpuFacts {
    int capability = 0;  ///< 80 for 8.0
    int multiprocessors = 0;
    double clock = 0;   ///< cycles per second
    double memory = 0;  ///< bytes per second, of the interface
};

/// Takes about a second.
FormatPeaks measured_formats(Device& device, Context& context, const GpuFacts& facts);

}  // namespace mantissa::on_cuda
