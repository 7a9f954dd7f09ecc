// PNG by libpng. Its errors leave by longjmp, so the frames that are left have no objects with destructors.
// Samples are used unchanged, as in Pillow and torchvision: gAMA, cHRM, sRGB and iCCP, which describe their
// display, have no effect.
#include <fmt/format.h>

#include <csetjmp>
#include <cstring>

#include <png.h>

#include "mantissa/base/error.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

namespace {

class PngFile {
  public:
    explicit PngFile(std::span<const std::byte> bytes) : left_(bytes) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, leave, [](png_structp, const char*) {});
        if (png_) info_ = png_create_info_struct(png_);
        if (!info_) {
            png_destroy_read_struct(&png_, nullptr, nullptr);
            throw UserError("no memory for the decoder of PNG");
        }
    }
    ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }
    PngFile(const PngFile&) = delete;
    PngFile& operator=(const PngFile&) = delete;

    Image decode() {
        if (!read_header()) throw damaged();
        const std::uint32_t height = png_get_image_height(png_, info_),
                            width = png_get_image_width(png_, info_);
        require_decodable(height, width);
        image_.height = height;
        image_.width = width;
        image_.pixels.resize(std::size_t{height} * width * 3);
        if (!read_rows()) throw damaged();
        return std::move(image_);
    }

  private:
    [[noreturn]] static void leave(png_structp png, const char* why) {
        auto* const file = static_cast<PngFile*>(png_get_error_ptr(png));
        std::strncpy(file->why_, why, sizeof file->why_ - 1);
        std::longjmp(file->where_, 1);
    }
    static void take(png_structp png, png_bytep to, std::size_t size) {
        auto* const file = static_cast<PngFile*>(png_get_io_ptr(png));
        if (size > file->left_.size()) png_error(png, "the file ends too early");
        std::memcpy(to, file->left_.data(), size);
        file->left_ = file->left_.subspan(size);
    }
    UserError damaged() const { return UserError(fmt::format("damaged PNG: {}", why_)); }

    /// False: libpng failed, and why_ has its text.
    bool read_header() {
        if (setjmp(where_) != 0) return false;
        png_set_read_fn(png_, this, take);
        png_read_info(png_, info_);
        return true;
    }

    /// As read_header. Takes the upper byte of 16 bits, and ignores transparency.
    bool read_rows() {
        if (setjmp(where_) != 0) return false;
        png_set_strip_16(png_);
        if (png_get_color_type(png_, info_) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
        png_set_expand_gray_1_2_4_to_8(png_);
        png_set_gray_to_rgb(png_);
        png_set_strip_alpha(png_);
        const int passes = png_set_interlace_handling(png_);
        png_read_update_info(png_, info_);
        for (int pass = 0; pass < passes; ++pass)
            for (std::int64_t row = 0; row < image_.height; ++row)
                png_read_row(png_, image_.pixels.data() + row * image_.width * 3, nullptr);
        return true;
    }

    std::span<const std::byte> left_;  // of the file
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    std::jmp_buf where_ = {};
    char why_[128] = {};
    Image image_;
};

}  // namespace

Image decode_png(std::span<const std::byte> bytes) { return PngFile(bytes).decode(); }

}  // namespace mantissa
