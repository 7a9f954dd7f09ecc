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
constexpr std::array<std::string_view, 16> of_this_run = {
    "--help",        "--resume",      "--checkpoint", "--log",         "--json",       "--html",
    "--tensorboard", "--trace",       "--dump",       "--profile",     "--pass-times", "--quiet",
    "--threads",     "--dump-target", "--device",     "--read-threads"};

constexpr std::array<std::string_view, 4> files = {"--text", "--tokens", "--tokenizer", "--images"};

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
        if (option->count() > 0 || holds(of_this_run, name)) continue;
        try {
            option->add_result(values);
            option->run_callback();
        } catch (const CLI::ParseError& error) {
            throw UserError(fmt::format("the checkpoint remembers {} as {}: {}", name, fmt::join(values, " "),
                                        error.what()));
        }
    }
}

}  // namespace mantissa::cli
