// The program: one subcommand a file. Exit 0; 1 with one line that says what was wrong; 2 for wrong usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/tokenize.h"

int main(int argc, char** argv) {
    CLI::App app("mantissa: a mixed-precision training engine", "mantissa");
    app.require_subcommand(1);
    mantissa::cli::add_tokenize_command(app);
    try {
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::exception& error) {
        fmt::print(stderr, "mantissa: {}\n", error.what());
        return 1;
    }
}
