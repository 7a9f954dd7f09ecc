// The program: one subcommand a file. Exit 0; 1 with one line that says what was wrong; 2 for wrong usage.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "cli/explain.h"
#include "cli/generate.h"
#include "cli/ladder.h"
#include "cli/lint.h"
#include "cli/numerics.h"
#include "cli/peaks.h"
#include "cli/tokenize.h"
#include "cli/train.h"
#include "mantissa/base/error.h"
#include "mantissa/base/version.h"

namespace {

/// What is wrong with the first word, where it is no command; else nothing.
std::string unknown_command(const CLI::App& app, const std::string& word) {
    std::string names;
    for (const CLI::App* command : app.get_subcommands({})) {
        if (command->get_name() == word) return "";
        names += (names.empty() ? "" : ", ") + command->get_name();
    }
    return fmt::format("there is no command '{}'; there are: {}", word, names);
}

/// The command line as a shell would take it again.
std::string command_line(int argc, char** argv) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
    std::string line = "mantissa";
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
            line += " " + word;
            continue;
        }
        line += " '";
        for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
        line += "'";
    }
    return line;
}

/// What was printed must have arrived: a report that a full disk swallowed is no success.
void require_printed() {
    std::cout.flush();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout)
        throw mantissa::UserError("standard output cannot be written; what was printed there is not whole");
}

/// The status that CLI11's help, version or complaint about wrong usage ends with, once it is printed.
int exit_after(const CLI::App& app, const CLI::ParseError& error) {
    if (app.exit(error) != 0) return 2;
    require_printed();
    return 0;
}

int run(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return exit_after(app, error);
    }
    require_printed();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write, which names it
    CLI::App app("mantissa: a mixed-precision training engine", "mantissa");
    app.require_subcommand(1);
    app.set_version_flag("--version",
                         fmt::format("mantissa {} ({})", mantissa::version(), mantissa::commit()));
    const std::string typed = command_line(argc, argv);
    mantissa::cli::add_ladder_command(app, typed);
    mantissa::cli::add_train_command(app, typed);
    mantissa::cli::add_generate_command(app);
    mantissa::cli::add_explain_command(app, typed);
    mantissa::cli::add_lint_command(app);
    mantissa::cli::add_peaks_command(app);
    mantissa::cli::add_numerics_command(app, typed);
    mantissa::cli::add_tokenize_command(app);
    try {
        if (const std::string wrong = argc > 1 && argv[1][0] != '-' ? unknown_command(app, argv[1]) : "";
            !wrong.empty()) {
            fmt::print(stderr, "mantissa: {}\n", wrong);
            return 2;
        }
        return run(app, argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "mantissa: {}\n", error.what());
        return 1;
    }
}
