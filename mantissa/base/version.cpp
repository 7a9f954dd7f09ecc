#include "mantissa/base/version.h"

namespace mantissa::inline v0 {

const char* version() { return MANTISSA_VERSION; }
const char* commit() { return MANTISSA_COMMIT; }

}  // namespace mantissa
