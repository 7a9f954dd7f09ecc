// Words for people on standard error: where nobody reads it, or it is on a full disk, the work goes on.
#pragma once

#include <string>

namespace mantissa::cli {

/// The text with options in place of the fields that the library names, as "--batch" for "`batch`".
std::string with_options(const std::string& text);

/// Prints with_options of it.
void print_error(const std::string& text);

/// Changes the handling of bus errors: from now on, reading what is gone of a mapped file ends the program
/// with status 1 and a line that names the file.
void name_files_cut_short();

}  // namespace mantissa::cli
