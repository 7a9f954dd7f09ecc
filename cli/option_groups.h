// What the options of a command are about: the sections of its help and of the manual.
#pragma once

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Sorts the options of commands that have many into sections.
void group_options(CLI::App& app);

}  // namespace mantissa::cli
