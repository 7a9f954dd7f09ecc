// `mantissa generate`: continues a prompt with a trained model.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_generate_command(CLI::App& app);

}  // namespace mantissa::cli
