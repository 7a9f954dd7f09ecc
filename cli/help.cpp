#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

namespace mantissa::cli {

namespace {

constexpr std::size_t columns = 80, text_column = 28;

/// The text in lines of at most 80 columns; all but the first are indented.
std::string wrapped(const std::string& text, std::size_t indent) {
    std::string out, line;
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
        const std::string word = text.substr(at, end - at);
        if (!line.empty() && indent + line.size() + 1 + word.size() > columns) {
            out += line + "\n" + std::string(indent, ' ');
            line.clear();
        }
        if (!word.empty()) line += (line.empty() ? "" : " ") + word;
        at = end + 1;
    }
    return out + line;
}

/// An entry in two columns; after a long name, the text begins on the next line.
std::string entry(const std::string& name, const std::string& text) {
    const std::string gap = name.size() + 1 < text_column ? std::string(text_column - name.size(), ' ')
                                                          : "\n" + std::string(text_column, ' ');
    return name + gap + wrapped(text, text_column) + "\n";
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
        return wrapped(command->get_description(), 0) + "\n";
    }

    /// A group with exactly one of its options given.
    std::string make_expanded(const CLI::App* group) const override {
        std::string text = "\n" + wrapped(group->get_description(), 0) + ":\n";
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

}  // namespace mantissa::cli
