// Words for people on standard error: where nobody reads it, or it is on a full disk, the work goes on.
#pragma once

#include <string>

namespace mantissa::cli {

/// The text with options in place of the fields that the library names, as "--batch" for "`batch`".
std::string with_options(const std::string& text);

/// Prints with_options of it.
void print_error(const std::string& text);

}  // namespace mantissa::cli
