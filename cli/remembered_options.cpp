#include "cli/remembered_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/old_names.h"
#include "cli/option_rows.h"
#include "mantissa/base/error.h"
#include "mantissa/data/byte_tokenizer.h"

namespace mantissa::cli {

TypedOptions options_to_remember(const Command& command) {
    TypedOptions typed;
    for (const Row& row : command.rows()) {
        const CLI::Option& option = *command.app().get_option(row.name);
        if (option.count() == 0 || row.is.kept == Kept::nothing) continue;
        std::vector<std::string>& values = typed[row.name] = option.results();
        if (!row.is.is_path) continue;
        for (std::string& value : values)
            if (value != "-" && (row.name != "--tokenizer" || value != bytes_word))
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

std::string take_over(Command& command, const TypedOptions& remembered, Reports reports) {
    std::string left_out;
    for (const auto& [saved_name, saved_values] : remembered) {
        const std::string name = "--" + option_today(std::string_view(saved_name).substr(2));
        std::vector<std::string> values;
        for (const std::string& value : saved_values)
            values.push_back(value_today(std::string_view(name).substr(2), value));
        const auto row = std::ranges::find(command.rows(), name, &Row::name);
        if (row == command.rows().end())
            throw UserError(fmt::format("the checkpoint remembers {}, which there is not", name));
        CLI::Option& option = *command.app().get_option(name);
        if (option.count() > 0 || row->is.kept == Kept::nothing) continue;
        if (row->is.kept == Kept::value) {
            give(option, values);
        } else if (const std::string why = give_report(option, values, reports); !why.empty()) {
            left_out +=
                fmt::format("{}{} {} ({})", left_out.empty() ? "" : ", ", name, fmt::join(values, " "), why);
        }
    }
    return left_out;
}

}  // namespace mantissa::cli
