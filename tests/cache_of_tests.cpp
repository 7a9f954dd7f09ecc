// A cache folder of the tests' own, for the programs that they run, too: a kernel is compiled for one test
// and found by the next, and nobody's own folder is touched.
#include <cstdlib>

namespace mantissa::testing {
namespace {

[[maybe_unused]] const int set = ::setenv("XDG_CACHE_HOME", MANTISSA_BINARY_DIR "/cache_of_tests", 1);

}  // namespace
}  // namespace mantissa::testing
