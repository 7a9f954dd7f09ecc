// `mantissa manual`: the manual page, made of what the commands say of themselves.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Adds the command. It describes the commands that the program has when it runs.
void add_manual_command(CLI::App& app);

}  // namespace mantissa::cli
