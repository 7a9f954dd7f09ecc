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

/// The text of an option file, and where it stands.
struct OptionFile {
    std::string path;
    std::string text;
    std::vector<CLI::ConfigItem> items;

    /// "options.toml, line 3": where the item's name stands first in its section.
    std::string place_of(const CLI::ConfigItem& item) const;
};

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view white = " \t\r";
    const std::size_t begin = std::min(text.find_first_not_of(white), text.size());
    return text.substr(begin, text.find_last_not_of(white) + 1 - begin);
}

std::string OptionFile::place_of(const CLI::ConfigItem& item) const {
    std::istringstream lines(text);
    const std::string section = fmt::format("[{}]", fmt::join(item.parents, "."));
    bool within = item.parents.empty();
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        const std::string_view words = trimmed(line);
        const bool is_section = words.starts_with('[');
        if (is_section) within = words == section;
        const bool begins_section = is_section && item.name == "++" && within;
        const std::string_view name = trimmed(words.substr(0, std::min(words.find('='), words.size())));
        const bool is_named = name == item.name || name == item.fullname();
        if (begins_section || (!is_section && is_named && (within || name == item.fullname())))
            return fmt::format("{}, line {}", path, number);
    }
    return path;
}

OptionFile read_option_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse_value(option_name, fmt::format("cannot open {}", path));
    std::stringstream text;
    text << file.rdbuf();
    if (file.bad() || text.fail())
        refuse_value(option_name, fmt::format("cannot read {}, or it is empty", path));
    if (!is_utf8(text.view()) || text.view().find('\0') != std::string_view::npos)
        refuse_value(option_name, fmt::format("{} is no text", path));
    if (const std::size_t first = text.view().find_first_not_of(" \t\r\n");
        first != std::string_view::npos && text.view()[first] == '{')
        refuse_value(option_name,
                     fmt::format("{} begins with {{, as JSON does; expected a line each of NAME = VALUE, "
                                 "as `steps = 100`",
                                 path));
    try {
        OptionFile read{path, text.str(), {}};
        read.items = CLI::ConfigTOML().from_config(text);
        return read;
    } catch (const CLI::Error& error) {
        refuse_value(option_name, fmt::format("{}: {}", path, error.what()));
    }
}

/// The command of a section; throws UserError if there is none of that name.
const CLI::App& command_of_section(const CLI::App& app, const CLI::ConfigItem& item, const OptionFile& file) {
    const CLI::App* command = &app;
    for (const std::string& name : item.parents) {
        const CLI::App* next = command_named(*command, name);
        // A command within another one may stand alone: [converge].
        if (!next && command == &app)
            for (const CLI::App* outer : app.get_subcommands({}))
                if (!next) next = command_named(*outer, name);
        if (!next)
            refuse_value(option_name,
                         fmt::format("{}: there is no command {}; name one, as [train], or none, so that "
                                     "lines are of every command",
                                     file.place_of(item), fmt::join(item.parents, ".")));
        command = next;
    }
    return *command;
}

/// What the line says in words of a command line.
void append(std::vector<std::string>& words, const CLI::Option& option, const CLI::ConfigItem& item,
            const std::string& place) {
    if (const int most = option.get_items_expected_max(); most > 0) {
        // A name that is there twice gets both values.
        if (item.inputs.size() > static_cast<std::size_t>(most))
            refuse_value(option_name, fmt::format("{}: {} takes {} value{}, got {}", place, item.name, most,
                                                  most == 1 ? "" : "s", item.inputs.size()));
        words.push_back("--" + item.name);
        words.insert(words.end(), item.inputs.begin(), item.inputs.end());
        return;
    }
    const std::string value = item.inputs.empty() ? "" : item.inputs.front();
    if (value != "true" && value != "false")
        refuse_value(option_name,
                     fmt::format("{}: {} is a switch, true or false, got '{}'", place, item.name, value));
    if (value == "true") words.push_back("--" + item.name);
}

}  // namespace

void add_option_file(CLI::App& app) {
    for (CLI::App* command : app.get_subcommands({})) {
        command
            ->add_option(std::string(option_name),
                         "Options from this file, a line each of NAME = VALUE; what is typed counts instead")
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
    const OptionFile file = read_option_file(*given);
    for (const CLI::ConfigItem& item : file.items) {
        const CLI::App& owner = item.parents.empty() ? command : command_of_section(app, item, file);
        if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
        const std::string option = "--" + item.name, place = file.place_of(item);
        const CLI::Option* const known = owner.get_option_no_throw(option);
        if (!known || option == option_name || option == "--help")
            refuse_value(option_name, fmt::format("{}: {} has no option {}{}", place, owner.get_name(),
                                                  item.name, what_to_type(options_of(owner), item.name)));
        if (&owner != &command || is_typed(typed, option)) continue;
        append(words.all, *known, item, place);
        words.places[option] = place;
    }
    return words;
}

}  // namespace mantissa::cli
