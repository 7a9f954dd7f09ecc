#include "cli/remembered_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "cli/old_names.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/data/byte_tokenizer.h"

namespace mantissa::cli {

namespace {

/// Options of one run and not of the next.
constexpr std::array<std::string_view, 18> of_this_run = {
    "--help",         "--config",       "--resume",        "--checkpoint", "--json",        "--trace",
    "--dump",         "--profile",      "--pass-times",    "--quiet",      "--dump-target", "--device",
    "--read-threads", "--rank-timeout", "--compare-every", "--threads",    "--merge",       "--plan"};

/// Options whose files grow with a run.
constexpr std::array<std::string_view, 3> of_reports = {"--log", "--html", "--tensorboard"};

constexpr std::array<std::string_view, 10> files = {"--text",      "--chats",  "--tokens", "--validation",
                                                    "--tokenizer", "--images", "--log",    "--tensorboard",
                                                    "--html",      "--adapter"};

bool holds(const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != std::end(names);
}

}  // namespace

TypedOptions options_to_remember(const CLI::App& command) {
    // A name that no option has any more would do nothing, in silence.
    for (const std::span<const std::string_view> names :
         {std::span<const std::string_view>(of_this_run), {of_reports}, {files}})
        for (const std::string_view name : names)
            check(command.get_option_no_throw(std::string(name)),
                  "options that are named here are the command's");
    TypedOptions typed;
    for (const CLI::Option* option : command.get_options()) {
        const std::string name = option->get_name();
        if (option->count() == 0 || holds(of_this_run, name)) continue;
        std::vector<std::string>& values = typed[name] = option->results();
        if (!holds(files, name)) continue;
        for (std::string& value : values)
            if (value != "-" && (name != "--tokenizer" || value != bytes_word))
                value = std::filesystem::absolute(value).lexically_normal().string();
    }
    return typed;
}

namespace {

void give(CLI::Option& option, const std::vector<std::string>& values) {
    try {
        option.add_result(values);
        option.run_callback();
    } catch (const CLI::ParseError& error) {
        throw UserError(fmt::format("the checkpoint remembers {} as {}: {}", option.get_name(),
                                    fmt::join(values, " "), error.what()));
    }
}

/// Gives the option of a report; where that cannot be, returns why.
std::string give_report(CLI::Option& option, const std::vector<std::string>& values, Reports reports) {
    if (reports == Reports::end) return "the run saves elsewhere";
    if (values == std::vector<std::string>{"-"}) return "standard output is given anew";
    try {
        give(option, values);
    } catch (const UserError& error) {
        option.clear();
        return error.what();
    }
    return "";
}

}  // namespace

std::string take_over(CLI::App& command, const TypedOptions& remembered, Reports reports) {
    std::string left_out;
    for (const auto& [saved_name, saved_values] : remembered) {
        const std::string name = "--" + option_today(std::string_view(saved_name).substr(2));
        std::vector<std::string> values;
        for (const std::string& value : saved_values)
            values.push_back(value_today(std::string_view(name).substr(2), value));
        CLI::Option* const option = command.get_option_no_throw(name);
        if (!option) throw UserError(fmt::format("the checkpoint remembers {}, which there is not", name));
        if (option->count() > 0 || holds(of_this_run, name)) continue;
        if (!holds(of_reports, name)) {
            give(*option, values);
        } else if (const std::string why = give_report(*option, values, reports); !why.empty()) {
            left_out +=
                fmt::format("{}{} {} ({})", left_out.empty() ? "" : ", ", name, fmt::join(values, " "), why);
        }
    }
    return left_out;
}

}  // namespace mantissa::cli
