// Words for people on standard error: where nobody reads it, or it is on a full disk, the work goes on.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace mantissa::cli {

/// The text with options in place of the fields that the library names, as "--batch" for "`batch`".
std::string with_options(const std::string& text);

/// Prints with_options of it.
void print_error(const std::string& text);

/// Prints a line of words behind the program's name.
template <class... Values>
void say(fmt::format_string<Values...> words, Values&&... values) {
    print_error("mantissa: " + fmt::format(words, std::forward<Values>(values)...) + "\n");
}
/// The same for what is probably not as it is meant.
template <class... Values>
void warn(fmt::format_string<Values...> words, Values&&... values) {
    say("warning: {}", fmt::format(words, std::forward<Values>(values)...));
}

/// Changes the handling of bus errors: from now on, reading what is gone of a mapped file ends the program
/// with status 1 and a line that names the file.
void name_files_cut_short();

}  // namespace mantissa::cli
