// `mantissa generate`: continues a prompt with a trained model.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_generate_command(CLI::App& app);

}  // namespace mantissa::cli
