// The kinds of files that decode_picture knows, one function each. They throw UserError without the file's
// name.
#pragma once

#include "mantissa/formats/picture.h"

namespace mantissa::inline v0 {

Picture decode_jpeg(std::span<const std::byte> bytes, std::int64_t enough);
Picture decode_png(std::span<const std::byte> bytes);

/// Throws UserError for more than most_pixels.
void require_decodable(std::uint64_t height, std::uint64_t width);

}  // namespace mantissa
