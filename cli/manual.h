// `mantissa manual`: the manual page, made of what the commands say of themselves.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Adds the command; the others are those that stand in the program when it runs.
void add_manual_command(CLI::App& app);

}  // namespace mantissa::cli
