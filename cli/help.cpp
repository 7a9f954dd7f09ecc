#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/version.h"

namespace mantissa::cli {

namespace {

constexpr std::size_t columns = 80, text_column = 28;

/// An entry in two columns; after a long name, the text begins on the next line.
std::string entry(const std::string& name, const std::string& text) {
    const std::string gap = name.size() + 1 < text_column ? std::string(text_column - name.size(), ' ')
                                                          : "\n" + std::string(text_column, ' ');
    return name + gap + wrapped(text, columns, text_column) + "\n";
}

class Help : public CLI::Formatter {
  public:
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        std::string text = option->get_description(), value = option->get_default_str();
        if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
        if (!value.empty() && text.find("(default: ") == std::string::npos)
            text += fmt::format(" (default: {})", value);
        return entry("  " + make_option_name(option, is_positional) + make_option_opts(option), text);
    }

    /// The kind of value, or its words, and the number of values.
    std::string make_option_opts(const CLI::Option* option) const override {
        if (option->get_type_size() == 0) return "";
        std::string type = option->get_type_name();
        const std::size_t colon = type.find(':');
        if (colon != std::string::npos)
            type = type.substr(colon + 1).starts_with('{') ? type.substr(colon + 1) : type.substr(0, colon);
        const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
        return fmt::format(" {}{}", type,
                           is_list                          ? " ..."
                           : option->get_expected_min() > 1 ? fmt::format(" x {}", option->get_expected())
                                                            : "");
    }

    std::string make_subcommand(const CLI::App* command) const override {
        return entry("  " + command->get_name(), command->get_description());
    }

    std::string make_description(const CLI::App* command) const override {
        return wrapped(command->get_description(), columns) + "\n";
    }

    /// A group with exactly one of its options given.
    std::string make_expanded(const CLI::App* group) const override {
        std::string text = "\n" + wrapped(group->get_description(), columns) + ":\n";
        for (const CLI::Option* option : group->get_options())
            if (option->get_name() != "--config" && option->get_name() != "--help")
                text += make_option(option, false);
        return text;
    }

    std::string make_footer(const CLI::App* command) const override {
        std::string names = command->get_name();
        for (const CLI::App* outer = command->get_parent(); outer && outer->get_parent();
             outer = outer->get_parent())
            names = outer->get_name() + " " + names;
        std::string text;
        for (const std::string& example : examples_of(names)) text += "  " + example + "\n";
        return text.empty() ? "" : "Examples:\n" + text;
    }
};

void give_help(CLI::App& app, const std::shared_ptr<Help>& help) {
    app.formatter(help);
    for (CLI::App* command : app.get_subcommands({})) give_help(*command, help);
}

}  // namespace

void lay_out_help(CLI::App& app) { give_help(app, std::make_shared<Help>()); }

std::vector<std::string> examples_of(std::string_view command) {
    static const std::map<std::string_view, std::vector<std::string>> examples = {
        {"mantissa",
         {"mantissa train --text notes --checkpoint my.ckpt",
          "mantissa generate --checkpoint my.ckpt --prompt \"Once upon\""}},
        {"ladder", {"mantissa ladder --model gpt2-tiny", "mantissa ladder --batch 4 --html ladder.html"}},
        {"train",
         {"mantissa train --text notes --steps 500 --checkpoint my.ckpt",
          "mantissa train --resume my.ckpt --steps 1000"}},
        {"generate",
         {"mantissa generate --checkpoint my.ckpt --prompt \"Once upon\"",
          "mantissa generate --checkpoint my.ckpt --prompts lines.txt --top-p 0.9"}},
        {"predict",
         {"mantissa predict --checkpoint my.ckpt holiday.jpg",
          "mantissa predict --checkpoint my.ckpt new/ --csv new.csv"}},
        {"explain",
         {"mantissa explain --model gpt2-tiny --policy bf16",
          "mantissa explain --model gpt2-tiny --roofline --html step.html"}},
        {"lint", {"mantissa lint --model gpt2-1558m", "mantissa lint --from my.ckpt --no-measure"}},
        {"peaks", {"mantissa peaks", "mantissa peaks --of h100"}},
        {"numerics",
         {"mantissa numerics --text notes --html numbers.html",
          "mantissa numerics converge --policies fp32,bf16 --steps 30"}},
        {"numerics converge",
         {"mantissa numerics converge --text notes --steps 100",
          "mantissa numerics converge --policies fp32,bf16 --html page.html"}},
        {"bench", {"mantissa bench --model ResNet20", "mantissa bench --model VGG19 --compare"}},
        {"tokenize",
         {"mantissa tokenize --train notes --vocabulary 4096 --out tok",
          "mantissa tokenize --encode notes --tokenizer tok --out shards"}},
        {"completion",
         {"source <(mantissa completion bash)",
          "mantissa completion fish > ~/.config/fish/completions/mantissa.fish"}},
        {"manual", {"mantissa manual | man -l -", "mantissa manual > mantissa.1"}}};
    const auto found = examples.find(command);
    return found == examples.end() ? std::vector<std::string>{} : found->second;
}

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

/// The manual page, made of the commands' own descriptions.
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
