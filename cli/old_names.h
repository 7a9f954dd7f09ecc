// Names that options, and words among their values, had in earlier versions. They are still taken, on the
// command line, in option files and from checkpoints, and stand in no help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cli {

/// The option's name today, without hyphens before it; any other name as it is.
std::string option_today(std::string_view name);

/// A value of the option, or several with commas between, in the words of today.
std::string value_today(std::string_view option, std::string_view value);

/// A command line in the words of today.
std::vector<std::string> words_today(const std::vector<std::string>& words);

}  // namespace mantissa::cli
