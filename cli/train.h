// `mantissa train`: trains a model and prints a line a step.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_train_command(CLI::App& app);

}  // namespace mantissa::cli
