// The version of this mantissa.
#pragma once

#include <string>

namespace mantissa::inline v0 {

/// As in "0.1.0".
const char* version();

/// The commit that was built, shortened, with "+" behind it if files were changed; "unknown" outside of git.
const char* commit();

/// An identifier that tells this build from every other, in hexadecimal digits: the linker's build ID of the
/// program or library that this function is in. Empty where it was linked without one.
std::string build_id();

}  // namespace mantissa
