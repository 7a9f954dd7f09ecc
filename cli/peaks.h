// `mantissa peaks`: what a device reaches in each number format.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_peaks_command(CLI::App& app);

}  // namespace mantissa::cli
