// Options of a command in a file: --config FILE, a line each of `name = value`, as in TOML.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// The words of a command line, and where those came from that were not typed.
struct Words {
    std::vector<std::string> all = {};
    std::map<std::string, std::string> places = {};  ///< of options: "options.toml, line 3"

    /// A message that begins with an option, with the place of that option before it.
    std::string with_place(const std::string& message) const;
};

/// The words of a command line, a command first, and behind them what its --config names: each option that is
/// not among the words. Names have no hyphens before them, a switch is true or false, several values stand
/// in brackets; lines below [NAME] are of the command of that name alone. Throws UserError, with the file and
/// the line, for a file that cannot be read, and for names that are no command's or that the command does not
/// know.
Words with_option_file(const CLI::App& app, std::vector<std::string> typed);

}  // namespace mantissa::cli
