// The text of --help: lines of 80 columns, and two examples for each command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Gives the program and all of its commands this help. Call it when all commands are there.
void lay_out_help(CLI::App& app);

/// Command lines that show what the command is for, as "train" or "numerics converge"; none for other names.
std::vector<std::string> examples_of(std::string_view command);

}  // namespace mantissa::cli
