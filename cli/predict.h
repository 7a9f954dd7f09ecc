// `mantissa predict`: says what is on images, with a network that train --images trained.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

void add_predict_command(CLI::App& app);

}  // namespace mantissa::cli
