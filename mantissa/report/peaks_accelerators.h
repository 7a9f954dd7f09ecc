// Accelerators that are known by their facts, and what follows from the facts: peaks without the device.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0 {

/// "a100", "h100", "h200".
std::vector<std::string> accelerator_names();

/// Theoretical peaks only. Throws UserError, naming those there are, for a name that is not among them.
FormatPeaks accelerator_peaks(const std::string& name);

}  // namespace mantissa
