// Images in files of JPEG and PNG, as 8 bits of red, green and blue a pixel. What kind a file is, its first
// bytes say, not its name. Grey, palettes and 16 bits a channel (the upper byte) are converted, and CMYK as
// Adobe stores it. Transparency and what a PNG says of its colours (gAMA, cHRM, sRGB) change nothing. The
// turn that a camera notes (EXIF) is not made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

struct Image {
    std::int64_t height = 0, width = 0;
    std::vector<std::uint8_t> pixels = {};  // [H, W, 3]
};

/// More are refused before memory is taken for them: 11,585 x 11,585.
inline constexpr std::int64_t max_pixels = std::int64_t{1} << 27;

/// The image in a file's bytes; `name` says which file. A JPEG whose sides are a multiple of what is wanted
/// is decoded at a half, a quarter or an eighth of its size. Its shorter side keeps at least `enough` pixels;
/// 0: the image is decoded whole. Throws UserError that names the file if it is empty, damaged, of another
/// kind or larger than max_pixels, or of a kind that this build lacks the library for.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::int64_t enough = 0);

/// The kinds of files that decode_image knows, one function each. They throw UserError without the file's
/// name.
Image decode_jpeg(std::span<const std::byte> bytes, std::int64_t enough);
Image decode_png(std::span<const std::byte> bytes);

/// Throws UserError for more than max_pixels.
void require_decodable(std::uint64_t height, std::uint64_t width);

}  // namespace mantissa
