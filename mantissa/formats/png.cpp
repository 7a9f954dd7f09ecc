// PNG by libpng's simplified interface, which converts whatever is in the file.
#include <fmt/format.h>
#include <png.h>

#include "mantissa/base/error.h"
#include "mantissa/formats/picture_kinds.h"

namespace mantissa::inline v0 {

namespace {

struct PngImage : png_image {
    PngImage() : png_image{} { version = PNG_IMAGE_VERSION; }
    ~PngImage() { png_image_free(this); }
    PngImage(const PngImage&) = delete;
    PngImage& operator=(const PngImage&) = delete;

    UserError damaged() const { return UserError(fmt::format("damaged PNG: {}", message)); }
};

}  // namespace

Picture decode_png(std::span<const std::byte> bytes) {
    PngImage image;
    if (!png_image_begin_read_from_memory(&image, bytes.data(), bytes.size())) throw image.damaged();
    require_decodable(image.height, image.width);
    image.format = PNG_FORMAT_RGB;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // as 8 bits have it; else it would take 16 for linear
    Picture picture{.height = image.height, .width = image.width};
    picture.pixels.resize(PNG_IMAGE_SIZE(image));
    const png_color black = {};
    if (!png_image_finish_read(&image, &black, picture.pixels.data(), 0, nullptr)) throw image.damaged();
    return picture;
}

}  // namespace mantissa
