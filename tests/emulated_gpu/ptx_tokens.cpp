#include "tests/emulated_gpu/ptx_tokens.h"

#include <fmt/format.h>

#include <cctype>

#include "tests/emulated_gpu/ptx_text.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

}  // namespace

Tokens::Tokens(std::string_view text) {
    int line = 1;
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        const std::size_t start = at;
        if (c == '\n') ++line;
        if (std::isspace(static_cast<unsigned char>(c))) {
            ++at;
        } else if (text.substr(at, 2) == "//") {
            at = std::min(text.find('\n', at), text.size());
        } else if (text.substr(at, 2) == "/*") {
            const std::size_t end = text.find("*/", at + 2);
            if (end == std::string_view::npos) throw TextError{line, "a comment has no end"};
            for (; at < end + 2; ++at) line += text[at] == '\n';
        } else if (c == '"') {
            at = text.find('"', at + 1);
            if (at == std::string_view::npos) throw TextError{line, "a string has no end"};
            words_.push_back({text.substr(start, ++at - start), line});
        } else if (in_word(c)) {
            // An opcode may hold '::', as in ld.global.L1::no_allocate.
            while (at < text.size() && (in_word(text[at]) || text.substr(at, 2) == "::"))
                at += text[at] == ':' ? 2 : 1;
            words_.push_back({text.substr(start, at - start), line});
        } else if (std::string_view("{}()[]<>,;:@!|+-=").find(c) != std::string_view::npos) {
            words_.push_back({text.substr(at++, 1), line});
        } else {
            throw TextError{line, fmt::format("the character '{}' is not of PTX", c)};
        }
    }
}

std::string_view Tokens::peek(std::size_t after) const {
    return next_ + after < words_.size() ? words_[next_ + after].text : std::string_view();
}

std::string Tokens::take() {
    if (ended()) return "";
    return std::string(words_[next_++].text);
}

bool Tokens::accept(std::string_view word) {
    if (peek() != word || ended()) return false;
    ++next_;
    return true;
}

void Tokens::expect(std::string_view word) {
    if (!accept(word)) throw TextError{line(), fmt::format("'{}' was expected, not '{}'", word, peek())};
}

void Tokens::skip_line() {
    const int here = words_[next_ - 1].line;
    while (!ended() && line() == here) ++next_;
}

void Tokens::skip_statement() {
    while (!ended() && take() != ";") {
    }
}

int Tokens::line() const {
    if (words_.empty()) return 1;
    return words_[std::min(next_, words_.size() - 1)].line;
}

}  // namespace mantissa::cuda::ptx
