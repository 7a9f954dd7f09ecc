// `mantissa peaks`: what a device reaches in each number format.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_peaks_command(CLI::App& app);

}  // namespace mantissa::cli
