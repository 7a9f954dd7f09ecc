// `mantissa bench`: the mixed-precision tutorial's benchmark of networks for images.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// `typed`: the command line, which the page repeats.
void add_bench_command(CLI::App& app, const std::string& typed);

}  // namespace mantissa::cli
