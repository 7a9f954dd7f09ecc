// `mantissa ladder`: the rungs on the same weights and text.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_ladder_command(CLI::App& app);

}  // namespace mantissa::cli
