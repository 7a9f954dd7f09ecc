// Peaks of the number formats as a table and as JSON; those of accelerators that are known by their facts.
#pragma once

#include <string>
#include <vector>

#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0 {

/// For people. Columns and lines of which nothing is known are left out.
std::string peaks_table(const FormatPeaks& peaks);

/// For machines: docs/json.md.
std::string peaks_json(const FormatPeaks& peaks);

/// "a100", "h100", "h200".
std::vector<std::string> accelerator_names();

/// Theoretical peaks only. Throws UserError, naming those there are, for a name that is not among them.
FormatPeaks accelerator_peaks(const std::string& name);

}  // namespace mantissa
