#include "cli/option_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cli/command_line.h"
#include "cli/names_elsewhere.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"

namespace mantissa::cli {

namespace {

// The lines of an option file: NAME = VALUE, and [SECTION] before one command's lines. A part of TOML.
struct OptionLine {
    std::vector<std::string> section;  ///< "numerics.converge" is two names; none: any command
    std::string name;                  ///< empty: a section's first line
    std::vector<std::string> values;   ///< of all lines with this name in this section
    int number = 0;                    ///< of the first such line, from 1
    int last = 0;                      ///< of the last
};

constexpr std::string_view blanks = " \t\r", quotes = "\"'`";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(blanks);
    return first == std::string_view::npos ? std::string_view()
                                           : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// A file's text, read line by line.
class Reader {
  public:
    Reader(std::string_view text, const std::string& path) : rest_(text), path_(path) {
        if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
    }

    std::vector<OptionLine> read() {
        if (const std::size_t first = rest_.find_first_not_of(" \t\r\n");
            first != std::string_view::npos && rest_[first] == '{')
            throw UserError(fmt::format(
                "{} begins with {{, as JSON does; expected a line each of NAME = VALUE, as `steps = 100`",
                path_));
        while (!rest_.empty()) {
            const std::string_view line = next();
            if (line.empty() || line[0] == '#' || line[0] == ';') continue;
            if (line[0] == '[')
                begin_section(line);
            else
                add(line);
        }
        return std::move(lines_);
    }

  private:
    [[noreturn]] void refuse(std::string_view reason, int number = 0) const {
        throw UserError(
            fmt::format("{}, line {}: {}", path_, number > 0 ? number : std::max(number_, 1), reason));
    }

    std::string_view next() {
        const std::size_t end = rest_.find('\n');
        const std::string_view line = rest_.substr(0, end);
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
        ++number_;
        return trimmed(line);
    }

    void begin_section(std::string_view line) {
        const std::string_view section = trimmed(line.substr(0, line.find('#')));
        if (section.size() < 3 || section.back() != ']') refuse(fmt::format("'{}' is no [NAME]", line));
        const std::string_view name = trimmed(section.substr(1, section.size() - 2));
        section_ = name == "default" ? std::vector<std::string>() : split_at('.', name);
        lines_.push_back({section_, "", {}, number_, number_});
    }

    void add(std::string_view line) {
        const int number = number_;
        const std::size_t equals = line.find('=');
        std::string_view name = trimmed(equals == std::string_view::npos ? line.substr(0, line.find('#'))
                                                                         : line.substr(0, equals));
        std::vector<std::string> section = section_;
        if (name.size() > 1 && quotes.find(name[0]) != std::string_view::npos && name.back() == name[0])
            name = name.substr(1, name.size() - 2);
        else if (name.find('.') != std::string_view::npos) {
            const std::vector<std::string> names = split_at('.', name);
            section.insert(section.end(), names.begin(), names.end() - 1);
            name = name.substr(name.rfind('.') + 1);
        }
        if (name.starts_with("--")) name.remove_prefix(2);
        if (name.empty() || name.find_first_of(blanks) != std::string_view::npos)
            refuse(fmt::format("'{}' is no NAME = VALUE", line));
        std::vector<std::string> values = equals == std::string_view::npos
                                              ? std::vector<std::string>{"true"}
                                              : values_of(line.substr(equals + 1));
        const auto same = std::ranges::find_if(
            lines_, [&](const OptionLine& other) { return other.name == name && other.section == section; });
        if (same == lines_.end())
            lines_.push_back({std::move(section), std::string(name), std::move(values), number, number});
        else {
            same->values.insert(same->values.end(), values.begin(), values.end());
            same->last = number;
        }
    }

    /// Values after the equals sign, separated by commas, else by spaces.
    std::vector<std::string> values_of(std::string_view text) {
        const int number = number_;
        text = trimmed(text);
        if (!text.starts_with('[')) {
            const Pieces by_blanks = pieces_of(text, blanks);
            const std::vector<std::string> pieces =
                by_blanks.has_comma ? pieces_of(text, ",").pieces : by_blanks.pieces;
            return pieces.empty() ? std::vector<std::string>{""} : pieces;
        }
        std::vector<std::string> values;
        text.remove_prefix(1);
        for (Pieces some = pieces_of(text, ",", ']');; some = pieces_of(next(), ",", ']')) {
            values.insert(values.end(), some.pieces.begin(), some.pieces.end());
            if (some.closed) return values;
            if (rest_.empty()) refuse("a bracket has no end; close it with ]", number);
        }
    }

    struct Pieces {
        std::vector<std::string> pieces;
        bool closed = false;     ///< whether the text reached `close`
        bool has_comma = false;  ///< outside of quotes
    };

    /// A part of a line up to `close` or a comment, cut at separators; empty pieces are dropped.
    Pieces pieces_of(std::string_view text, std::string_view separators, char close = '\0') const {
        Pieces all;
        std::string piece;
        bool quoted = false;
        const auto end_piece = [&] {
            if (!quoted) piece = trimmed(piece);
            if (quoted || !piece.empty()) all.pieces.push_back(piece);
            piece.clear(), quoted = false;
        };
        std::size_t at = 0;
        for (; at < text.size() && text[at] != '#'; ++at) {
            if (close != '\0' && text[at] == close) break;
            const auto is_in = [c = text[at]](std::string_view set) { return set.find(c) != set.npos; };
            if (is_in(separators)) {
                end_piece();
            } else if (is_in(quotes) && (quoted || trimmed(piece).empty())) {
                if (quoted) end_piece();
                at = read_quoted(text, at, piece);
                quoted = true;
            } else if (!quoted || !is_in(blanks)) {
                if (quoted) end_piece();  // text after a quote is a piece of its own
                if (text[at] == ',') all.has_comma = true;
                piece += text[at];
            }
        }
        end_piece();
        all.closed = at < text.size() && text[at] == close;
        if (all.closed && trimmed(text.substr(at + 1)).find_first_not_of('#') == 0)
            refuse(fmt::format("'{}' stands behind the bracket", trimmed(text.substr(at + 1))));
        return all;
    }

    /// Reads from an opening quote on; returns the closing quote's position. A backslash before a quote makes
    /// it a character.
    std::size_t read_quoted(std::string_view text, std::size_t at, std::string& piece) const {
        const char quote = text[at];
        piece.clear();
        for (++at; at < text.size() && text[at] != quote; ++at) {
            if (text[at] == '\\' && at + 1 < text.size() && text[at + 1] == quote) ++at;
            piece += text[at];
        }
        if (at == text.size()) refuse(fmt::format("a quote {} has no end", quote));
        return at;
    }

    std::string_view rest_;
    const std::string& path_;
    int number_ = 0;
    std::vector<std::string> section_;
    std::vector<OptionLine> lines_;
};

/// Values are separated by commas, by spaces if there is no comma, or are in brackets, which may span lines.
/// Quotes protect commas, spaces and #. A name alone is true. Throws UserError, with `path` and line, for an
/// unclosed quote or bracket, for JSON, and for a line without a name.
std::vector<OptionLine> option_lines(std::string_view text, const std::string& path) {
    return Reader(text, path).read();
}

constexpr std::string_view option_name = "--config";

/// The value after an option among the words, or after its equals sign; null if the option is missing.
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

/// Its subcommand of that name; null if there is none.
const CLI::App* command_named(const CLI::App& app, const std::string& name) {
    for (const CLI::App* command : app.get_subcommands({}))
        if (command->get_name() == name) return command;
    return nullptr;
}

/// The command named by the first words.
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
    if (std::filesystem::is_directory(path))
        refuse_value(option_name, fmt::format("{} is a folder; expected a file of options", path));
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

/// The command of a section; throws UserError if there is none.
const CLI::App& command_of_section(const CLI::App& app, const OptionLine& line, const std::string& place) {
    const CLI::App* command = &app;
    for (const std::string& name : line.section) {
        const CLI::App* next = command_named(*command, name);
        // A subcommand's name may be given alone: [converge].
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

/// Appends the line as words of a command line.
void append(std::vector<std::string>& words, const CLI::Option& option, const OptionLine& line,
            const std::string& place) {
    if (const int most = option.get_items_expected_max(); most > 0) {
        // A name given twice has both values.
        if (line.values.size() > static_cast<std::size_t>(most))
            refuse_value(option_name, fmt::format("{}: {} takes {}, got {}", place, line.name,
                                                  count_text(most, "value"), line.values.size()));
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
        const std::string option = "--" + line.name,
                          place = line.last == line.number
                                      ? fmt::format("{}, line {}", *given, line.number)
                                      : fmt::format("{}, lines {} and {}", *given, line.number, line.last);
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
