// Text for people: control characters are shown instead of sent, since they move a terminal's cursor, ring
// its bell, and make a file binary for grep.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// UTF-8 text with each control character but line breaks and tabs as \xNN.
std::string printable(std::string_view text);

}  // namespace mantissa
