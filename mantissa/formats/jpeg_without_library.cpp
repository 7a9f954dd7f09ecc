// Replaces jpeg.cpp where libjpeg is missing.
#include "mantissa/base/error.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

Image decode_jpeg(std::span<const std::byte>, std::int64_t) {
    throw UserError(
        "this build reads no JPEG: libjpeg was missing when it was built (libjpeg-dev on Debian)");
}

}  // namespace mantissa
