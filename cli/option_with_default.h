// Options whose help shows the value that they have where they are not given.
#pragma once

#include <string>

namespace mantissa::cli {

/// Adds it to a CLI::App; returns the CLI::Option.
template <class Command, class Value>
auto* add_with_default(Command& command, const std::string& name, Value& value, const std::string& what) {
    return command.add_option(name, value, what)->capture_default_str();
}

}  // namespace mantissa::cli
