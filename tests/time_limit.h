// A time limit for every test by itself, so that one which hangs is named: ctest ends the whole program,
// which prints nothing before a test has ended. A test that crashes is named as well.
#pragma once

#include <string>

namespace mantissa::testing {

/// Unless called again before: after so many seconds the program says that the test is taken to hang, and
/// ends with status 1. 0: no limit any more.
void limit_time(const std::string& test, unsigned seconds);

}  // namespace mantissa::testing
