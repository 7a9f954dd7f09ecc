// Text for people: control characters are shown instead of sent, since they move a terminal's cursor, ring
// its bell, and make a file binary for grep.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// UTF-8 text with each control character but line breaks and tabs as \xNN.
std::string printable(std::string_view text);

/// The word as a shell takes it: in single quotes where it has characters that mean something there.
inline std::string shell_word(std::string_view word) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) return std::string(word);
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

}  // namespace mantissa
