// Options of a command in a file: --config FILE, a line each of `name = value`, as in TOML.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Adds --config to every command.
void add_option_file(CLI::App& app);

/// The words of a command line, a command first, and behind them what its --config names: each option that is
/// not among the words. Names have no hyphens before them, a switch is true or false, several values stand
/// in brackets; lines below [NAME] are of the command of that name alone. Throws UserError, with the file,
/// for one that cannot be read and for names that the command does not know.
std::vector<std::string> with_option_file(const CLI::App& app, std::vector<std::string> words);

}  // namespace mantissa::cli
