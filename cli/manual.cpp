// `mantissa manual`: the manual page, made of the commands' own descriptions.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "cli/help.h"
#include "mantissa/base/version.h"

namespace mantissa::cli {

namespace {

/// Text for roff: hyphens can be copied, and no line begins with a request.
std::string roff(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n'))
            out += std::string("\\&") + c;
        else
            out += c;
    }
    return out;
}

std::string of_option(const CLI::Option& option) {
    std::string value = option.get_items_expected_max() > 0 ? " " + option.get_type_name() : "";
    if (!option.get_default_str().empty()) value += "=" + option.get_default_str();
    return fmt::format(".TP\n\\fB{}\\fR\\fI{}\\fR\n{}\n", roff(option.get_name()), roff(value),
                       roff(option.get_description()));
}

/// A section per command, and one for each of its subcommands.
std::string of_command(const CLI::App& command, const std::string& before) {
    const std::string name = before + " " + command.get_name();
    std::string text = fmt::format(".SH {}\n{}.\n", roff(name), roff(command.get_description()));
    for (const std::string& group : command.get_groups()) {
        text += fmt::format(".SS {}\n", roff(group));
        for (const CLI::Option* option : command.get_options())
            if (option->get_group() == group && option->get_name() != "--help") text += of_option(*option);
    }
    constexpr std::string_view program = "mantissa ";
    if (const auto examples = examples_of(std::string_view(name).substr(program.size())); !examples.empty()) {
        text += ".SS Examples\n.nf\n";
        for (const std::string& example : examples) text += roff(example) + "\n";
        text += ".fi\n";
    }
    for (const CLI::App* inner : command.get_subcommands({})) text += of_command(*inner, name);
    return text;
}

std::string manual(const CLI::App& app) {
    std::string text = fmt::format(
        ".TH MANTISSA 1 \"\" \"mantissa {}\" \"User Commands\"\n"
        ".SH NAME\nmantissa \\- a mixed\\-precision training engine\n"
        ".SH SYNOPSIS\n.B mantissa\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
        ".SH DESCRIPTION\n"
        "Takes a model that trains correctly in FP32 and makes it as fast as the machine allows. Results go "
        "to "
        "standard output, progress and errors to standard error. Files named \\- are standard input or "
        "output.\n",
        roff(version()));
    for (const CLI::App* command : app.get_subcommands({})) text += of_command(*command, "mantissa");
    text +=
        ".SH EXIT STATUS\n.TP\n0\nAll went well.\n.TP\n1\nOne line on standard error says what went wrong.\n"
        ".TP\n2\nThe command line is wrong, a word or a value.\n"
        ".TP\n128 and more\nThe number of the signal that interrupted it, plus 128.\n"
        ".SH FILES\n.TP\n~/.cache/mantissa/peaks.json\nThis machine's peaks, which MFU is a share of. "
        "XDG_CACHE_HOME moves it.\n";
    return text;
}

}  // namespace

void add_manual_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("manual", "Print the manual page, for man");
    command->callback([&app] { fmt::print("{}", manual(app)); });
}

}  // namespace mantissa::cli
