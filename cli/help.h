// The text of --help: lines of 80 columns, and two examples for each command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Sets this help for the program and all of its commands. Call it after all commands were added.
void lay_out_help(CLI::App& app);

/// Example command lines for a command, as "train" or "numerics converge"; none for other names.
std::vector<std::string> examples_of(std::string_view command);

}  // namespace mantissa::cli
