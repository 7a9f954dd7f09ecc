// `mantissa train`: trains a model and prints a line a step.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// `typed`: the command line, which the page repeats.
void add_train_command(CLI::App& app, const std::string& typed);

}  // namespace mantissa::cli
