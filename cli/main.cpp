// The program: one subcommand a file. Exit 0; 1 with one line that says what was wrong; 2 for wrong usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/ladder.h"
#include "cli/tokenize.h"
#include "cli/train.h"
#include "mantissa/base/version.h"

namespace {

/// Names the commands there are, where the first word is none of them.
void require_known_command(const CLI::App& app, const std::string& word) {
    std::string names;
    for (const CLI::App* command : app.get_subcommands({})) {
        if (command->get_name() == word) return;
        names += (names.empty() ? "" : ", ") + command->get_name();
    }
    throw CLI::ExtrasError("mantissa", fmt::format("there is no command '{}'; there are: {}", word, names),
                           CLI::ExitCodes::ExtrasError);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("mantissa: a mixed-precision training engine", "mantissa");
    app.require_subcommand(1);
    app.set_version_flag("--version",
                         fmt::format("mantissa {} ({})", mantissa::version(), mantissa::commit()));
    mantissa::cli::add_ladder_command(app);
    mantissa::cli::add_train_command(app);
    mantissa::cli::add_tokenize_command(app);
    try {
        if (argc > 1 && argv[1][0] != '-') require_known_command(app, argv[1]);
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "mantissa: {}\n", error.what());
        return 1;
    }
}
