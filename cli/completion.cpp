#include "cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

struct KnownOption {
    std::string name, description;  ///< the name with its hyphens
};

/// Those with a long name, of the command and of its groups.
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

/// Words that begin with a hyphen are options of the command, others files, the first one a command.
std::string for_bash(const CLI::App& app) {
    std::vector<std::string> names;
    std::string cases;
    for (const CLI::App* command : commands(app)) {
        std::vector<std::string> options;
        for (const KnownOption& option : long_options(*command)) options.push_back(option.name);
        names.push_back(command->get_name());
        cases += fmt::format("        {}) options=\"{}\" ;;\n", command->get_name(), fmt::join(options, " "));
    }
    return fmt::format(
        "_mantissa() {{\n"
        "    local word=\"${{COMP_WORDS[COMP_CWORD]}}\" options=\"\"\n"
        "    COMPREPLY=()\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "        COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n"
        "        return\n"
        "    fi\n"
        "    case \"${{COMP_WORDS[1]}}\" in\n"
        "{}"
        "    esac\n"
        "    case \"$word\" in\n"
        "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "    esac\n"
        "}}\n"
        "complete -o default -F _mantissa mantissa\n",
        fmt::join(names, " "), cases);
}

std::string quoted_for_fish(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out + "'";
}

std::string for_fish(const CLI::App& app) {
    std::string text;
    for (const CLI::App* command : commands(app)) {
        text += fmt::format("complete -c mantissa -n __fish_use_subcommand -f -a {} -d {}\n",
                            command->get_name(), quoted_for_fish(command->get_description()));
        for (const KnownOption& option : long_options(*command))
            text +=
                fmt::format("complete -c mantissa -n '__fish_seen_subcommand_from {}' -l {} -d {}\n",
                            command->get_name(), option.name.substr(2), quoted_for_fish(option.description));
    }
    return text;
}

std::string completion(const CLI::App& app, const std::string& shell) {
    if (shell == "bash") return for_bash(app);
    if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + for_bash(app);
    if (shell == "fish") return for_fish(app);
    throw InternalError("completion: unknown shell " + shell);
}

}  // namespace

void add_completion_command(CLI::App& app) {
    const auto shell = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand(
        "completion",
        "Print what a shell needs to complete commands and options: source <(mantissa completion bash)");
    command->add_option("shell", *shell, "Of bash, zsh and fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command->callback([&app, shell] { fmt::print("{}", completion(app, *shell)); });
}

}  // namespace mantissa::cli
