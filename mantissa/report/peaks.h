// Peaks of the number formats as a table and as JSON, and peaks of accelerators from their data.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0 {

/// For people; without columns and lines of unknown values.
std::string peaks_table(const FormatPeaks& peaks);

/// For machines: docs/json.md.
std::string peaks_json(const FormatPeaks& peaks);

/// "a100", "h100", "h200".
std::vector<std::string> accelerator_names();

/// Theoretical peaks only. Throws UserError, naming the accelerators, for another name.
FormatPeaks accelerator_peaks(const std::string& name);

}  // namespace mantissa
