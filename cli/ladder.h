// `mantissa ladder`: the rungs on the same weights and text.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// `typed`: the command line, which the page repeats.
void add_ladder_command(CLI::App& app, const std::string& typed);

}  // namespace mantissa::cli
