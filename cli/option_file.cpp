#include "cli/option_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cli/command_line.h"
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

/// The options of a command without their hyphens.
std::vector<std::string> names_in_files(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name().substr(2));
    return names;
}

std::vector<CLI::ConfigItem> read_items(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse_value(option_name, fmt::format("cannot open {}", path));
    std::stringstream text;
    text << file.rdbuf();
    if (file.bad() || text.fail())
        refuse_value(option_name, fmt::format("cannot read {}, or it is empty", path));
    if (!is_utf8(text.view()) || text.view().find('\0') != std::string_view::npos)
        refuse_value(option_name, fmt::format("{} is no text", path));
    try {
        return CLI::ConfigTOML().from_config(text);
    } catch (const CLI::Error& error) {
        refuse_value(option_name, fmt::format("{}: {}", path, error.what()));
    }
}

/// What the line says in words of a command line.
void append(std::vector<std::string>& words, const CLI::Option& option, const CLI::ConfigItem& item,
            const std::string& path) {
    if (const int most = option.get_items_expected_max(); most > 0) {
        // A name that is there twice gets both values.
        if (item.inputs.size() > static_cast<std::size_t>(most))
            refuse_value(option_name, fmt::format("{}: {} takes {} value{}, got {}", path, item.name, most,
                                                  most == 1 ? "" : "s", item.inputs.size()));
        words.push_back("--" + item.name);
        words.insert(words.end(), item.inputs.begin(), item.inputs.end());
        return;
    }
    const std::string value = item.inputs.empty() ? "" : item.inputs.front();
    if (value != "true" && value != "false")
        refuse_value(option_name,
                     fmt::format("{}: {} is a switch, true or false, got '{}'", path, item.name, value));
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

std::vector<std::string> with_option_file(const CLI::App& app, std::vector<std::string> words) {
    std::string storage;
    const std::string* const given = word_of(words, option_name, storage);
    if (!given) return words;
    const std::string path = *given;
    const CLI::App& command = command_of(app, words);
    std::vector<std::string> all = words;
    for (const CLI::ConfigItem& item : read_items(path)) {
        if (item.name == "++" || item.name == "--") continue;  // a section begins or ends
        if (!item.parents.empty() && item.parents != std::vector<std::string>{command.get_name()}) continue;
        const std::string option = "--" + item.name;
        const CLI::Option* const known = command.get_option_no_throw(option);
        if (!known || option == option_name || option == "--help")
            refuse_value(option_name,
                         fmt::format("{}: {} has no option {}{}", path, command.get_name(), item.name,
                                     did_you_mean(names_in_files(command), item.name)));
        if (!is_typed(words, option)) append(all, *known, item, path);
    }
    return all;
}

}  // namespace mantissa::cli
