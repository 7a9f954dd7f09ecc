// `mantissa bench`: the mixed-precision tutorial's benchmark of networks for pictures.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_bench_command(CLI::App& app);

}  // namespace mantissa::cli
