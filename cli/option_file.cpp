#include "cli/option_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cli/command_line.h"
#include "cli/names_elsewhere.h"
#include "cli/old_names.h"
#include "cli/option_lines.h"
#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

constexpr std::string_view option_name = "--config";

/// The value behind an option among the words, or behind its equals sign; null if it is not among them.
const std::string* word_of(const std::vector<std::string>& words, std::string_view option,
                           std::string& storage) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        if (word == option) return i + 1 < words.size() ? &words[i + 1] : nullptr;
        if (word.starts_with(option) && word.substr(option.size()).starts_with('=')) {
            storage = word.substr(option.size() + 1);
            return &storage;
        }
    }
    return nullptr;
}

bool is_typed(const std::vector<std::string>& words, const std::string& option) {
    return std::ranges::any_of(
        words, [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

/// Its command of that name; null if it has none.
const CLI::App* command_named(const CLI::App& app, const std::string& name) {
    for (const CLI::App* command : app.get_subcommands({}))
        if (command->get_name() == name) return command;
    return nullptr;
}

/// The command that the first words name.
const CLI::App& command_of(const CLI::App& app, const std::vector<std::string>& words) {
    const CLI::App* command = &app;
    for (const std::string& word : words) {
        const CLI::App* const next = command_named(*command, word);
        if (!next) break;
        command = next;
    }
    return *command;
}

std::vector<OptionLine> read_option_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse_value(option_name, fmt::format("cannot open {}", path));
    std::stringstream text;
    text << file.rdbuf();
    if (file.bad() || text.fail())
        refuse_value(option_name, fmt::format("cannot read {}, or it is empty", path));
    if (!is_utf8(text.view()) || text.view().find('\0') != std::string_view::npos)
        refuse_value(option_name, fmt::format("{} is no text", path));
    return in_option(option_name, [&] { return option_lines(text.view(), path); });
}

/// The command that a section names; throws UserError if there is no such command.
const CLI::App& command_of_section(const CLI::App& app, const OptionLine& line, const std::string& place) {
    const CLI::App* command = &app;
    for (const std::string& name : line.section) {
        const CLI::App* next = command_named(*command, name);
        // A command within another one may stand alone: [converge].
        if (!next && command == &app)
            for (const CLI::App* outer : app.get_subcommands({}))
                if (!next) next = command_named(*outer, name);
        if (!next)
            refuse_value(option_name,
                         fmt::format("{}: there is no command {}; name one, as [train], or none, so that "
                                     "lines are of every command",
                                     place, fmt::join(line.section, ".")));
        command = next;
    }
    return *command;
}

/// The line in words of a command line.
void append(std::vector<std::string>& words, const CLI::Option& option, const OptionLine& line,
            const std::string& place) {
    if (const int most = option.get_items_expected_max(); most > 0) {
        // A name that is there twice gets both values.
        if (line.values.size() > static_cast<std::size_t>(most))
            refuse_value(option_name, fmt::format("{}: {} takes {} value{}, got {}", place, line.name, most,
                                                  most == 1 ? "" : "s", line.values.size()));
        words.push_back("--" + line.name);
        words.insert(words.end(), line.values.begin(), line.values.end());
        return;
    }
    const std::string value = line.values.empty() ? "" : line.values.front();
    if (value != "true" && value != "false")
        refuse_value(option_name,
                     fmt::format("{}: {} is a switch, true or false, got '{}'", place, line.name, value));
    if (value == "true") words.push_back("--" + line.name);
}

}  // namespace

void add_option_file(CLI::App& app) {
    for (CLI::App* command : app.get_subcommands({})) {
        begin_section(*command, "Machine");
        command
            ->add_option(
                std::string(option_name),
                "Read options from this file, a line each of NAME = VALUE; typed options count instead")
            ->type_name("FILE");
        add_option_file(*command);
    }
}

std::string Words::with_place(const std::string& message) const {
    const auto place = places.find(message.substr(0, message.find_first_of(": ")));
    return place == places.end() ? message : fmt::format("{}: {}", place->second, message);
}

Words with_option_file(const CLI::App& app, std::vector<std::string> typed) {
    std::string storage;
    const std::string* const given = word_of(typed, option_name, storage);
    Words words{typed, {}};
    if (!given) return words;
    const CLI::App& command = command_of(app, typed);
    for (OptionLine& line : read_option_file(*given)) {
        line.name = option_today(line.name);
        for (std::string& value : line.values) value = value_today(line.name, value);
        const std::string option = "--" + line.name, place = fmt::format("{}, line {}", *given, line.number);
        const CLI::App& owner = line.section.empty() ? command : command_of_section(app, line, place);
        if (line.name.empty()) continue;  // a section begins
        const CLI::Option* const known = owner.get_option_no_throw(option);
        if (!known || option == option_name || option == "--help")
            refuse_value(option_name, fmt::format("{}: {} has no option {}{}", place, owner.get_name(),
                                                  line.name, what_to_type(options_of(owner), line.name)));
        if (&owner != &command || is_typed(typed, option)) continue;
        append(words.all, *known, line, place);
        words.places[option] = place;
    }
    return words;
}

}  // namespace mantissa::cli
