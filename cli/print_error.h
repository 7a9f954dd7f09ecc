// Text for people on standard error: if it cannot be written, the work continues.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace mantissa::cli {

/// The text with options in place of the library's fields, as "--batch" for "`batch`".
std::string with_options(const std::string& text);

/// Prints the text, converted by with_options.
void print_error(const std::string& text);

/// Prints a line after the program's name.
template <class... Values>
void say(fmt::format_string<Values...> words, Values&&... values) {
    print_error("mantissa: " + fmt::format(words, std::forward<Values>(values)...) + "\n");
}
/// Prints a warning about a probable mistake.
template <class... Values>
void warn(fmt::format_string<Values...> words, Values&&... values) {
    say("warning: {}", fmt::format(words, std::forward<Values>(values)...));
}

/// Handles bus errors from now on: reading past the end of a truncated mapped file ends the program with
/// status 1 and a line that names the file.
void name_files_cut_short();

}  // namespace mantissa::cli
