// The kinds of files that decode_image knows, one function each. They throw UserError without the file's
// name.
#pragma once

#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

Image decode_jpeg(std::span<const std::byte> bytes, std::int64_t enough);
Image decode_png(std::span<const std::byte> bytes);

/// Throws UserError for more than max_pixels.
void require_decodable(std::uint64_t height, std::uint64_t width);

}  // namespace mantissa
