#include "mantissa/data/chat/template_syntax.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/data/chat/template_value.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0::jinja {

std::string utf8(std::u32string_view text) {
    std::string bytes;
    for (const char32_t code : text) append_utf8(bytes, code);
    return bytes;
}

namespace {

/// Line breaks become LF, and the last one is dropped.
std::u32string characters_of(std::string_view source) {
    std::u32string text;
    for (std::size_t at = 0; at < source.size();) {
        const Utf8Step step = decode_utf8(source, at);
        if (step.code_point == Utf8Step::invalid) throw TemplateError("it is not UTF-8");
        at += step.length;
        if (step.code_point == '\r') {
            if (at < source.size() && source[at] == '\n') ++at;
            text += U'\n';
        } else {
            text += step.code_point;
        }
    }
    if (text.ends_with(U'\n')) text.pop_back();
    return text;
}

bool is_name_start(char32_t code) { return code == '_' || character_class(code) == CharacterClass::letter; }
bool is_name_part(char32_t code) {
    return is_name_start(code) || character_class(code) == CharacterClass::number;
}
bool is_digit(char32_t code) { return code >= '0' && code <= '9'; }

class Lexer {
  public:
    explicit Lexer(std::string_view source) : text_(characters_of(source)) {}

    std::vector<Token> all() {
        while (at_ < text_.size()) read_data();
        tokens_.push_back({Word::end, {}, line_});
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw TemplateError(fmt::format("line {}: {}", line_, what));
    }
    bool has(std::u32string_view part, std::size_t at) const {
        return std::u32string_view(text_).substr(std::min(at, text_.size())).starts_with(part);
    }
    bool has(std::u32string_view part) const { return has(part, at_); }
    void go_to(std::size_t to) {
        line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                             text_.begin() + static_cast<std::ptrdiff_t>(to), U'\n'));
        at_ = to;
    }
    std::size_t behind_spaces(std::size_t from) const {
        while (from < text_.size() && is_white(text_[from])) ++from;
        return from;
    }
    void push(Word word, std::u32string text) { tokens_.push_back({word, std::move(text), line_}); }

    /// The text up to a tag, without the white space that the tag removes.
    std::u32string data_before(std::size_t tag, char32_t sign, bool is_output) const {
        std::u32string data = text_.substr(at_, tag - at_);
        if (sign == '-') {
            while (!data.empty() && is_white(data.back())) data.pop_back();
        } else if (sign != '+' && !is_output) {
            const std::size_t line = data.rfind(U'\n') + 1;  // 0: no line break
            const bool begins_line = line > 0 || at_ == 0 || text_[at_ - 1] == '\n';
            if (begins_line && line < data.size() &&
                std::all_of(data.begin() + static_cast<std::ptrdiff_t>(line), data.end(), is_white))
                data.resize(line);
        }
        return data;
    }

    void read_data() {
        std::size_t tag = at_;
        while (
            tag + 1 < text_.size() &&
            !(text_[tag] == '{' && (text_[tag + 1] == '%' || text_[tag + 1] == '{' || text_[tag + 1] == '#')))
            ++tag;
        if (tag + 1 >= text_.size()) {
            push(Word::data, text_.substr(at_));
            return go_to(text_.size());
        }
        const char32_t kind = text_[tag + 1];
        char32_t sign = tag + 2 < text_.size() ? text_[tag + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        std::u32string data = data_before(tag, sign, kind == '{');
        if (!data.empty()) push(Word::data, std::move(data));
        go_to(tag + (sign ? 3 : 2));
        if (kind == '#') return skip_comment();
        if (kind == '%' && read_raw()) return;
        push(kind == '%' ? Word::block_begin : Word::output_begin, {});
        read_code(kind == '%');
    }

    /// The place after a block or comment that ends at `end`, or npos.
    std::size_t behind_end(std::size_t end, std::u32string_view close) const {
        if (has(close, end)) {
            const std::size_t behind = end + close.size();
            return behind < text_.size() && text_[behind] == '\n' ? behind + 1 : behind;
        }
        if (end + 1 < text_.size() && has(close, end + 1)) {
            if (text_[end] == '-') return behind_spaces(end + 1 + close.size());
            if (text_[end] == '+') return end + 1 + close.size();
        }
        return std::u32string::npos;
    }

    void skip_comment() {
        for (std::size_t end = at_; end < text_.size(); ++end)
            if (const std::size_t behind = behind_end(end, U"#}"); behind != std::u32string::npos)
                return go_to(behind);
        fail("a comment does not end");
    }

    /// Reads {% raw %} ... {% endraw %} from after its {%.
    bool read_raw() {
        std::size_t end = behind_spaces(at_);
        if (!has(U"raw", end)) return false;
        end = behind_spaces(end + 3);
        if (has(U"-%}", end))
            end = behind_spaces(end + 3);
        else if (has(U"%}", end))
            end += 2;
        else
            return false;
        go_to(end);
        for (std::size_t tag = at_; tag < text_.size(); ++tag) {
            if (!has(U"{%", tag)) continue;
            const char32_t sign = tag + 2 < text_.size() ? text_[tag + 2] : 0;
            const bool signed_ = sign == '-' || sign == '+';
            std::size_t close = behind_spaces(tag + (signed_ ? 3 : 2));
            if (!has(U"endraw", close)) continue;
            close = behind_spaces(close + 6);
            const std::size_t behind = behind_end(close, U"%}");
            if (behind == std::u32string::npos) continue;
            std::u32string data = data_before(tag, signed_ ? sign : 0, false);
            if (!data.empty()) push(Word::data, std::move(data));
            go_to(behind);
            return true;
        }
        fail("{% raw %} does not end");
    }

    bool read_end(bool is_block) {
        if (is_block) {
            const std::size_t behind = behind_end(at_, U"%}");
            if (behind == std::u32string::npos) return false;
            push(Word::block_end, {});
            go_to(behind);
            return true;
        }
        const bool strips = has(U"-}}");
        if (!strips && !has(U"}}")) return false;
        push(Word::output_end, {});
        go_to(strips ? behind_spaces(at_ + 3) : at_ + 2);
        return true;
    }

    void read_code(bool is_block) {
        std::u32string open;  // brackets
        while (true) {
            go_to(behind_spaces(at_));
            if (at_ == text_.size()) fail("a tag does not end");
            if (open.empty() && read_end(is_block)) return;
            const char32_t c = text_[at_];
            if (is_digit(c)) {
                read_number();
            } else if (is_name_start(c)) {
                std::size_t end = at_;
                while (end < text_.size() && is_name_part(text_[end])) ++end;
                push(Word::name, text_.substr(at_, end - at_));
                go_to(end);
            } else if (c == '\'' || c == '"') {
                read_text(c);
            } else {
                read_sign(open);
            }
        }
    }

    void read_number() {
        std::size_t end = at_;
        const auto digits = [&] {
            while (end < text_.size() &&
                   (is_digit(text_[end]) ||
                    (text_[end] == '_' && end + 1 < text_.size() && is_digit(text_[end + 1]))))
                ++end;
        };
        digits();
        bool is_real = false;
        if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
            is_real = true;
            ++end;
            digits();
        }
        if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
            std::size_t power = end + 1;
            if (power < text_.size() && (text_[power] == '+' || text_[power] == '-')) ++power;
            if (power < text_.size() && is_digit(text_[power])) {
                is_real = true;
                end = power;
                digits();
            }
        }
        std::u32string number = text_.substr(at_, end - at_);
        std::erase(number, U'_');
        push(is_real ? Word::real : Word::integer, std::move(number));
        go_to(end);
    }

    char32_t hexadecimal(std::size_t& at, int count) const {
        char32_t code = 0;
        for (int i = 0; i < count; ++i, ++at) {
            const char32_t c = at < text_.size() ? text_[at] : 0;
            const char32_t lower = c | 0x20;
            if (is_digit(c))
                code = code * 16 + (c - '0');
            else if (lower >= 'a' && lower <= 'f')
                code = code * 16 + (lower - 'a' + 10);
            else
                fail("a string has a wrong escape");
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a string has a wrong escape");
        return code;
    }

    void read_text(char32_t quote) {
        std::u32string text;
        std::size_t at = at_ + 1;
        while (true) {
            if (at >= text_.size()) fail("a string does not end");
            const char32_t c = text_[at++];
            if (c == quote) break;
            if (c != '\\') {
                text += c;
                continue;
            }
            if (at >= text_.size()) fail("a string does not end");
            const char32_t escaped = text_[at++];
            static constexpr std::u32string_view letters = U"abfnrtv\\'\"", meant = U"\a\b\f\n\r\t\v\\'\"";
            if (const std::size_t known = letters.find(escaped); known != letters.npos) {
                text += meant[known];
            } else if (escaped == '\n') {
                continue;
            } else if (escaped == 'x' || escaped == 'u' || escaped == 'U') {
                text += hexadecimal(at, escaped == 'x' ? 2 : escaped == 'u' ? 4 : 8);
            } else if (escaped >= '0' && escaped <= '7') {
                char32_t code = escaped - '0';
                for (int i = 0; i < 2 && at < text_.size() && text_[at] >= '0' && text_[at] <= '7'; ++i)
                    code = code * 8 + (text_[at++] - '0');
                text += code;
            } else {
                text += U'\\';
                text += escaped;
            }
        }
        push(Word::text, std::move(text));
        go_to(at);
    }

    void read_sign(std::u32string& open) {
        static constexpr std::u32string_view two[] = {U"//", U"**", U"==", U"!=", U">=", U"<="};
        static constexpr std::u32string_view one = U"+-/*%~[](){}><=.:|,;";
        for (const std::u32string_view sign : two)
            if (has(sign)) {
                push(Word::sign, std::u32string(sign));
                return go_to(at_ + 2);
            }
        const char32_t c = text_[at_];
        if (one.find(c) == one.npos) fail(fmt::format("unexpected {}", utf8({&c, 1})));
        static constexpr std::u32string_view opening = U"{([", closing = U"})]";
        if (const std::size_t which = opening.find(c); which != opening.npos) open += closing[which];
        if (closing.find(c) != closing.npos) {
            if (open.empty() || open.back() != c) fail(fmt::format("unexpected {}", utf8({&c, 1})));
            open.pop_back();
        }
        push(Word::sign, std::u32string(1, c));
        go_to(at_ + 1);
    }

    std::u32string text_;
    std::size_t at_ = 0;
    int line_ = 1;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> cut_template(std::string_view source) { return Lexer(source).all(); }

}  // namespace mantissa::inline v0::jinja
