// The lines of an option file: NAME = VALUE, and [SECTION] above those of one command. A part of TOML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

struct OptionLine {
    std::vector<std::string> section;  ///< "numerics.converge" is two names; none: of any command
    std::string name;                  ///< empty: the section begins
    std::vector<std::string> values;   ///< of all lines with this name in this section
    int number = 0;                    ///< of the first of these lines, from 1
};

/// Values are apart by commas, or by spaces where there is no comma, or stand in brackets, over several lines
/// too. Quotes keep commas, spaces and # as they are. A name alone is true. Throws UserError, with `path` and
/// the line, for a quote or bracket without its end, for JSON, and for what has no name.
std::vector<OptionLine> option_lines(std::string_view text, const std::string& path);

}  // namespace mantissa::cli
