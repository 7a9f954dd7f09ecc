// `mantissa numerics`: the numbers of a training step against the ranges of formats.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_numerics_command(CLI::App& app);

}  // namespace mantissa::cli
