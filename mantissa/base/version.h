// Which mantissa this is.
#pragma once

namespace mantissa::inline v0 {

/// As in "0.1.0".
const char* version();

/// The commit that was built, shortened, with "+" behind it if files were changed; "unknown" outside of git.
const char* commit();

}  // namespace mantissa
