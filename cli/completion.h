// `mantissa completion bash`: what a shell needs to complete commands and options.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Knows the commands that were added before it.
void add_completion_command(CLI::App& app);

}  // namespace mantissa::cli
