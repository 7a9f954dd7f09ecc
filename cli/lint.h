// `mantissa lint`: ugly sizes in a model, what to make of them, and what that gains here.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_lint_command(CLI::App& app);

}  // namespace mantissa::cli
