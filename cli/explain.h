// `mantissa explain`: what runs in what, by which rule.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace mantissa::cli {

/// `typed`: the command line, which the page repeats.
void add_explain_command(CLI::App& app, const std::string& typed);

}  // namespace mantissa::cli
