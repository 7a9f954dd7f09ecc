// `mantissa completion bash`: scripts with which a shell completes commands and options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/option_rows.h"
#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

struct KnownOption {
    std::string name, description;  ///< the name with its hyphens
};

/// Options with a long name, of the command and of its groups.
std::vector<KnownOption> long_options(const CLI::App& command) {
    std::vector<KnownOption> found;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames())
            found.push_back({"--" + name, option->get_description()});
    for (const CLI::App* group : command.get_subcommands({}))
        if (group->get_name().empty())
            for (KnownOption& option : long_options(*group)) found.push_back(std::move(option));
    return found;
}

std::vector<const CLI::App*> commands(const CLI::App& app) {
    std::vector<const CLI::App*> found;
    for (const CLI::App* command : app.get_subcommands({}))
        if (!command->get_name().empty()) found.push_back(command);
    return found;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    return names;
}

/// A line for a command, after lines for its subcommands: the pattern of its words, the possible next words,
/// and its options.
std::string bash_cases(const CLI::App& command, const std::string& words) {
    std::string cases;
    for (const CLI::App* inner : commands(command))
        cases += bash_cases(*inner, fmt::format("{} {}", words, inner->get_name()));
    std::vector<std::string> options;
    for (const KnownOption& option : long_options(command)) options.push_back(option.name);
    return cases + fmt::format("        \"{} \"*) commands=\"{}\" options=\"{}\" ;;\n", words,
                               fmt::join(names_of(commands(command)), " "), fmt::join(options, " "));
}

/// A line for each option with a fixed set of words: its name and the words.
std::string bash_values(const CLI::App& app) {
    std::set<std::string> names;
    const auto add = [&](const auto& self, const CLI::App& command) -> void {
        for (const KnownOption& option : long_options(command)) names.insert(option.name);
        for (const CLI::App* inner : commands(command)) self(self, *inner);
    };
    add(add, app);
    std::string cases;
    for (const std::string& name : names)
        if (const std::vector<std::string> words = words_of_option(app, name); !words.empty())
            cases += fmt::format("        {}) values=\"{}\" ;;\n", name, fmt::join(words, " "));
    return cases + fmt::format("        completion) values=\"{}\" ;;\n        help) values=\"{}\" ;;\n",
                               fmt::join(words_of_option(app, "shell"), " "),
                               fmt::join(names_of(commands(app)), " "));
}

/// Words that begin with a hyphen are options of the command. The first word may be a command, the second a
/// subcommand, and other words are files.
std::string for_bash(const CLI::App& app) {
    std::string cases;
    for (const CLI::App* command : commands(app)) cases += bash_cases(*command, command->get_name());
    return fmt::format(
        "_mantissa() {{\n"
        "    local word=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\" commands=\"\" values=\"\"\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"{} help --help --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[COMP_CWORD - 1]}}\" in\n"
        "{}"
        "    esac\n"
        "    if [ -n \"$values\" ] && [ \"${{word#-}}\" = \"$word\" ]; then\n"
        "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} \" in\n"
        "{}"
        "    esac\n"
        "    case \"$COMP_CWORD $word\" in\n"
        "        *\\ -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "        2\\ *) COMPREPLY=($(compgen -W \"$commands\" -- \"$word\")) ;;\n"
        "    esac\n"
        "}}\n"
        "complete -o default -F _mantissa mantissa\n",
        fmt::join(names_of(commands(app)), " "), bash_values(app), cases);
}

std::string quoted_for_fish(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out + "'";
}

/// Lines for the subcommands of this command, offered where `condition` holds, and for their options.
std::string fish_lines(const CLI::App& app, const CLI::App& command, const std::string& condition) {
    std::string text;
    for (const CLI::App* inner : commands(command)) {
        const std::string seen = fmt::format("__fish_seen_subcommand_from {}", inner->get_name());
        text += fmt::format("complete -c mantissa -n '{}' -f -a {} -d {}\n", condition, inner->get_name(),
                            quoted_for_fish(inner->get_description()));
        for (const KnownOption& option : long_options(*inner)) {
            const std::vector<std::string> words = words_of_option(app, option.name);
            const std::string values = words.empty() ? "" : fmt::format(" -x -a '{}'", fmt::join(words, " "));
            text += fmt::format("complete -c mantissa -n '{}' -l {}{} -d {}\n", seen, option.name.substr(2),
                                values, quoted_for_fish(option.description));
        }
        text += fish_lines(app, *inner, seen);
    }
    return text;
}

std::string completion(const CLI::App& app, const std::string& shell) {
    if (shell == "bash") return for_bash(app);
    if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + for_bash(app);
    if (shell == "fish") return fish_lines(app, app, "__fish_use_subcommand");
    throw InternalError("completion: unknown shell " + shell);
}

}  // namespace

void add_completion_command(CLI::App& app) {
    const auto shell = std::make_shared<std::string>();
    Command& command = Command::in(
        app, "completion", "Print the script by which a shell completes commands, options and their values");
    command.add("Options", {Row("shell", shell.get(), "Shell: bash, zsh or fish",
                                {.words = {"bash", "zsh", "fish"}, .words_are = WordUse::all})});
    command.app().get_option("shell")->required();
    command.app().callback([&app, shell] { fmt::print("{}", completion(app, *shell)); });
}

}  // namespace mantissa::cli
