#include "cli/remembered_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

/// Of one run and not of the next.
constexpr std::array<std::string_view, 15> of_this_run = {
    "--help",        "--config", "--resume",       "--checkpoint",   "--json",
    "--trace",       "--dump",   "--profile",      "--pass-times",   "--quiet",
    "--dump-target", "--device", "--read-threads", "--rank-timeout", "--compare-every"};

/// Of one run, too, but likely to be wanted of the next: remembered to be named.
constexpr std::array<std::string_view, 4> of_the_run_before = {"--log", "--html", "--tensorboard",
                                                               "--threads"};

constexpr std::array<std::string_view, 7> files = {"--text", "--tokens",      "--tokenizer", "--images",
                                                   "--log",  "--tensorboard", "--html"};

bool holds(const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != std::end(names);
}

}  // namespace

TypedOptions options_to_remember(const CLI::App& command) {
    TypedOptions typed;
    for (const CLI::Option* option : command.get_options()) {
        const std::string name = option->get_name();
        if (option->count() == 0 || holds(of_this_run, name)) continue;
        std::vector<std::string>& values = typed[name] = option->results();
        if (!holds(files, name)) continue;
        for (std::string& value : values)
            if (value != "-") value = std::filesystem::absolute(value).lexically_normal().string();
    }
    return typed;
}

void take_over(CLI::App& command, const TypedOptions& remembered) {
    for (const auto& [name, values] : remembered) {
        CLI::Option* const option = command.get_option_no_throw(name);
        if (!option) throw UserError(fmt::format("the checkpoint remembers {}, which there is not", name));
        if (option->count() > 0 || holds(of_this_run, name) || holds(of_the_run_before, name)) continue;
        try {
            option->add_result(values);
            option->run_callback();
        } catch (const CLI::ParseError& error) {
            throw UserError(fmt::format("the checkpoint remembers {} as {}: {}", name, fmt::join(values, " "),
                                        error.what()));
        }
    }
}

std::string not_taken_over(const CLI::App& command, const TypedOptions& remembered) {
    std::string text;
    for (const auto& [name, values] : remembered)
        if (holds(of_the_run_before, name) && command.get_option(name)->count() == 0)
            text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, fmt::join(values, " "));
    return text;
}

}  // namespace mantissa::cli
