// `mantissa numerics`: the numbers of a training step against the ranges of formats.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// `typed`: the command line, which the page repeats.
void add_numerics_command(CLI::App& app, const std::string& typed);

}  // namespace mantissa::cli
