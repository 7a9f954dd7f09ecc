#include "cli/option_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

constexpr std::string_view blanks = " \t\r", quotes = "\"'`";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(blanks);
    return first == std::string_view::npos ? std::string_view()
                                           : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> names_between_dots(std::string_view text) {
    std::vector<std::string> names(1);
    for (const char c : text)
        if (c == '.')
            names.emplace_back();
        else
            names.back() += c;
    return names;
}

/// The text of a file, read from its first line to its last.
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
        section_ = name == "default" ? std::vector<std::string>() : names_between_dots(name);
        lines_.push_back({section_, "", {}, number_});
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
            const std::vector<std::string> names = names_between_dots(name);
            section.insert(section.end(), names.begin(), names.end() - 1);
            name = name.substr(name.rfind('.') + 1);
        }
        if (name.empty()) refuse(fmt::format("'{}' is no NAME = VALUE", line));
        std::vector<std::string> values = equals == std::string_view::npos
                                              ? std::vector<std::string>{"true"}
                                              : values_of(line.substr(equals + 1));
        const auto same = std::ranges::find_if(
            lines_, [&](const OptionLine& other) { return other.name == name && other.section == section; });
        if (same == lines_.end())
            lines_.push_back({std::move(section), std::string(name), std::move(values), number});
        else
            same->values.insert(same->values.end(), values.begin(), values.end());
    }

    /// Text behind the equals sign: pieces between commas, else between spaces.
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
        bool closed = false;     ///< the text goes on to `close`
        bool has_comma = false;  ///< outside of quotes
    };

    /// A part of a line up to `close` or its comment, cut at separators; empty pieces are left out.
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
                if (quoted) end_piece();  // what stands behind a quote is a piece of its own
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

    /// Reads from an opening quote on; returns where the closing one stands. A backslash before the quote
    /// makes it a character.
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

}  // namespace

std::vector<OptionLine> option_lines(std::string_view text, const std::string& path) {
    return Reader(text, path).read();
}

}  // namespace mantissa::cli
