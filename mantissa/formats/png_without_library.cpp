// Replaces png.cpp where libpng is missing.
#include "mantissa/base/error.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

Image decode_png(std::span<const std::byte>) {
    throw UserError("this build reads no PNG: libpng was missing when it was built (libpng-dev on Debian)");
}

}  // namespace mantissa
