// `mantissa numerics converge`: the same training in several precisions.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Adds it below `numerics`. `typed`: the command line, which the page repeats.
void add_converge_command(CLI::App& numerics, const std::string& typed);

}  // namespace mantissa::cli
