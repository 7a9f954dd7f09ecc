// Options of a command in a file: --config FILE, with lines `name = value`, as in TOML.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// The words of a command line, and the sources of words that were not typed.
struct Words {
    std::vector<std::string> all = {};
    std::map<std::string, std::string> places = {};  ///< by option: "options.toml, line 3"

    /// A message that begins with an option, preceded by that option's place.
    std::string with_place(const std::string& message) const;
};

/// The words of a command line, a command first, followed by the options of its --config file that are not
/// among the words. Names have no leading hyphens; a switch is true or false; several values are in brackets;
/// lines below [NAME] apply to that command alone. Throws UserError, with file and line, for an unreadable
/// file and for unknown commands or options.
Words with_option_file(const CLI::App& app, std::vector<std::string> typed);

}  // namespace mantissa::cli
