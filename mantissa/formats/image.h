// JPEG and PNG images, as 8 bits of red, green and blue a pixel. The first bytes of a file, not its name,
// tell its kind. Grey, palettes, 16 bits a channel (the upper byte) and Adobe's CMYK are converted.
// Transparency and a PNG's colour data (gAMA, cHRM, sRGB) are ignored, and so is a camera's rotation (EXIF).
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

/// Larger images are refused before memory is taken: 11,585 x 11,585.
inline constexpr std::int64_t max_pixels = std::int64_t{1} << 27;

/// Decodes an image from a file's bytes; `name` is the file. A JPEG may be decoded at a half, a quarter or an
/// eighth of its size, if its shorter side keeps at least `enough` pixels; 0: at full size. Throws UserError
/// that names the file if it is empty, damaged, of another kind or larger than max_pixels, or if this build
/// lacks its library.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::int64_t enough = 0);

/// Decoders of one kind each. They throw UserError without the file's name.
Image decode_jpeg(std::span<const std::byte> bytes, std::int64_t enough);
Image decode_png(std::span<const std::byte> bytes);

/// Throws UserError for more than max_pixels.
void require_decodable(std::uint64_t height, std::uint64_t width);

}  // namespace mantissa
