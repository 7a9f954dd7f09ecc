// The message of the program when a file that it has mapped is cut short by somebody else.
#pragma once

namespace mantissa::cli {

/// Changes the handling of bus errors: from now on, reading what is gone of a mapped file ends the program
/// with status 1 and a line that names the file.
void name_files_cut_short();

}  // namespace mantissa::cli
