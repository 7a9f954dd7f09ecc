// The program: one subcommand a file. Its status is 0; 1 after one line with the error; 2 for a wrong word or
// value on the command line; 128 plus the number of a signal that interrupted it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <regex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/names_elsewhere.h"
#include "cli/option_file.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/version.h"

namespace {

std::vector<std::string> commands_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({}))
        if (!command->get_name().empty()) names.push_back(command->get_name());
    return names;
}

/// The error for a first word that is no command; else empty.
std::string unknown_command(const CLI::App& app, const std::string& word) {
    const std::vector<std::string> names = commands_of(app);
    if (std::ranges::find(names, word) != names.end()) return "";
    const std::string like = mantissa::cli::did_you_mean(names, word);
    return like.empty() ? fmt::format("there is no command '{}'; there are: {}", word, fmt::join(names, ", "))
                        : fmt::format("there is no command '{}'{}", word, like);
}

/// The parser's text about numbers of values, in the style of our errors.
std::string in_plain_words(const std::string& said) {
    static const std::regex too_many("(.*): At Most ([0-9]+) required but received ([0-9]+)"),
        too_few("(.*): At least ([0-9]+) required but received ([0-9]+)");
    std::smatch found;
    if (std::regex_match(said, found, too_many))
        return found[2] == "1"
                   ? fmt::format("{}: was given {} times; give it once", found.str(1), found.str(3))
                   : fmt::format("{}: takes {} values, got {}", found.str(1), found.str(2), found.str(3));
    if (std::regex_match(said, found, too_few))
        return fmt::format("{}: takes {} values, got {}", found.str(1), found.str(2), found.str(3));
    return said;
}

/// The full name of the last command among the words: "mantissa numerics converge".
std::string typed_name(const CLI::App& app) {
    std::string name = app.get_name();
    for (const CLI::App* command = &app; !command->get_subcommands().empty();) {
        command = command->get_subcommands().front();
        name += " " + command->get_name();
    }
    return name;
}

/// The error for the first word that the command does not know; empty if it knows all.
std::string unknown_option(const CLI::App& app) {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    for (const std::string& word : app.remaining(true)) {
        const std::string option = word.substr(0, word.find('='));
        if (!option.starts_with("-"))
            return fmt::format("{} takes no word '{}'; options begin with --", command->get_name(), word);
        const std::string hint = mantissa::cli::what_to_type(mantissa::cli::options_of(*command), option);
        return fmt::format("{} has no option {}{}{} `{} --help` lists them", command->get_name(), option,
                           hint, hint.ends_with('?') ? "" : ";", typed_name(app));
    }
    return "";
}

/// The command line, quoted for a shell.
std::string command_line(int argc, char** argv) {
    std::string line = "mantissa";
    for (int i = 1; i < argc; ++i) line += " " + mantissa::shell_word(argv[i]);
    return line;
}

/// Throws UserError if output was lost: a report on a full disk is a failure.
void require_printed() {
    std::cout.flush();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout)
        throw mantissa::UserError(
            fmt::format("standard output cannot be written ({}); what was printed there is not whole",
                        std::strerror(errno)));
}

/// An error about the command line begins with the wrong option.
int exit_status_of(std::string_view message) { return message.starts_with("--") ? 2 : 1; }

/// The words of the command line without the program's name; `help COMMAND` becomes `COMMAND --help`.
std::vector<std::string> words_of(int argc, char** argv) {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (!words.empty() && words.front() == "help") {
        words.erase(words.begin());
        words.emplace_back("--help");
    }
    return words;
}

/// The error for the words as typed, before they are parsed; else empty.
std::string wrong_words(const CLI::App& app, const std::vector<std::string>& words) {
    if (std::string wrong = mantissa::cli::not_utf8(words); !wrong.empty()) return wrong;
    return words.empty() || words[0].starts_with('-') ? "" : unknown_command(app, words[0]);
}

/// Prints the error of a wrong command line, and returns its status.
int end_with(const std::string& wrong) {
    mantissa::cli::print_error(fmt::format("mantissa: {}\n", wrong));
    return 2;
}

int run(CLI::App& app, const mantissa::cli::Words& words) {
    try {
        app.parse(std::vector<std::string>(words.all.rbegin(), words.all.rend()));  // parsed from the back
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // help or version
            app.exit(error);
        } else {
            // A missing option may be a misspelt one.
            const std::string wrong = unknown_option(app);
            return end_with(wrong.empty()
                                ? fmt::format("{}; `{} --help` lists what there is",
                                              words.with_place(in_plain_words(error.what())), typed_name(app))
                                : wrong);
        }
    }
    require_printed();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    mantissa::cli::open_standard_streams();
    std::signal(SIGXFSZ, SIG_IGN);  // so that a full quota is a write error that names its file
    mantissa::cli::name_files_cut_short();
    CLI::App app("mantissa: a mixed-precision training engine", "mantissa");
    app.require_subcommand(1);
    app.set_version_flag("-V,--version",
                         fmt::format("mantissa {} ({})", mantissa::version(), mantissa::commit()));
    const std::string typed = command_line(argc, argv);
    mantissa::cli::add_ladder_command(app, typed);
    mantissa::cli::add_train_command(app, typed);
    mantissa::cli::add_generate_command(app);
    mantissa::cli::add_predict_command(app);
    mantissa::cli::add_explain_command(app, typed);
    mantissa::cli::add_lint_command(app);
    mantissa::cli::add_peaks_command(app);
    mantissa::cli::add_numerics_command(app, typed);
    mantissa::cli::add_bench_command(app, typed);
    mantissa::cli::add_tokenize_command(app);
    mantissa::cli::add_completion_command(app);
    mantissa::cli::add_manual_command(app);
    mantissa::cli::join_short_sections(app);
    mantissa::cli::lay_out_help(app);
    mantissa::cli::Words words;
    try {
        const std::vector<std::string> typed_words = words_of(argc, argv);
        if (const std::string wrong = wrong_words(app, typed_words); !wrong.empty()) return end_with(wrong);
        words = mantissa::cli::with_option_file(app, mantissa::cli::words_today(typed_words));
        if (const std::string wrong = mantissa::cli::not_utf8(words.all); !wrong.empty())
            return end_with(wrong);
        if (mantissa::cli::asks_for_file_on_standard_output(words.all))
            mantissa::cli::keep_standard_output_for_files();
        return run(app, words);
    } catch (const mantissa::cli::Interrupted& interrupted) {
        mantissa::cli::print_error(fmt::format("mantissa: {}\n", interrupted.what()));
        return interrupted.exit_status();
    } catch (const mantissa::cli::AlreadySaid& said) {
        return said.exit_status();
    } catch (const std::bad_alloc&) {
        mantissa::cli::print_error(fmt::format(
            "mantissa: out of memory: the system refused some, or a limit did (ulimit -v, a control "
            "group); give a smaller model, batch or text, or raise the limit\n"));
        return 1;
    } catch (const std::system_error& error) {
        // Code that prints does not know its destination.
        mantissa::cli::print_error(
            std::ferror(stdout)
                ? fmt::format("mantissa: standard output cannot be written ({}); what was printed there is "
                              "not whole\n",
                              error.code().message())
                : fmt::format("mantissa: {}\n", error.what()));
        return 1;
    } catch (const std::exception& error) {
        const std::string said = mantissa::cli::with_options(error.what());
        mantissa::cli::print_error(fmt::format("mantissa: {}\n", words.with_place(said)));
        return exit_status_of(said);
    }
}
