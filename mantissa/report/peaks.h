// Peaks of the number formats as a table and as JSON.
#pragma once

#include <string>

#include "mantissa/device/format_peaks.h"

namespace mantissa::inline v0 {

/// For people. Columns and lines of which nothing is known are left out.
std::string peaks_table(const FormatPeaks& peaks);

/// For machines: docs/json.md.
std::string peaks_json(const FormatPeaks& peaks);

}  // namespace mantissa
