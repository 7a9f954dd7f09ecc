// Text for people: control characters are shown instead of sent, since they move a terminal's cursor, ring
// its bell, and make a file binary for grep.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// "1 step", "2 steps". `many` is the plural where it is not `one` with an s: "batches".
std::string count_text(std::integral auto count, std::string_view one, std::string_view many = {}) {
    std::string text = std::to_string(count) + " ";
    if (count == 1) return text.append(one);
    return many.empty() ? text.append(one) + "s" : text.append(many);
}

/// "a, b, c and 7 more": so many of the names, and how many others there are.
std::string names_text(std::span<const std::string> names, std::size_t most = 10);

/// UTF-8 text with each control character but line breaks and tabs as \xNN.
std::string printable(std::string_view text);

/// The text in lines of at most so many columns, each but the first behind so many spaces.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);

/// The word as a shell takes it: in single quotes where it has characters that mean something there.
inline std::string shell_word(std::string_view word) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) return std::string(word);
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

}  // namespace mantissa
