// `mantissa explain`: what runs in what, by which rule.
#pragma once

#include <CLI/CLI.hpp>

namespace mantissa::cli {

void add_explain_command(CLI::App& app);

}  // namespace mantissa::cli
