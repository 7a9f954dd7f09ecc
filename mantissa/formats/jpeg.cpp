// JPEG by libjpeg. Its errors leave by longjmp, so the frames that are left have no objects with destructors.
#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>

#include <jerror.h>
#include <jpeglib.h>

#include "mantissa/base/error.h"
#include "mantissa/formats/image.h"

namespace mantissa::inline v0 {

namespace {

struct Errors {
    jpeg_error_mgr base = {};  // first: libjpeg knows only this part
    std::jmp_buf where = {};
    char text[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void leave(j_common_ptr info) {
    auto* const errors = reinterpret_cast<Errors*>(info->err);
    errors->base.format_message(info, errors->text);
    std::longjmp(errors->where, 1);
}

/// libjpeg warns where it continues with invented data: a truncated image ends in grey. These warnings leave
/// every pixel correct.
void warn(j_common_ptr info, int level) {
    constexpr int harmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_BOGUS_PROGRESSION,
                                JWRN_JFIF_MAJOR};
    if (level >= 0 || std::ranges::find(harmless, info->err->msg_code) != std::end(harmless)) return;
    leave(info);
}

class JpegFile {
  public:
    JpegFile() {
        info_.err = jpeg_std_error(&errors_.base);
        errors_.base.error_exit = leave;
        errors_.base.emit_message = warn;
    }
    ~JpegFile() { jpeg_destroy_decompress(&info_); }
    JpegFile(const JpegFile&) = delete;
    JpegFile& operator=(const JpegFile&) = delete;

    Image decode(std::span<const std::byte> bytes, std::int64_t enough) {
        if (!read(bytes, enough)) throw UserError(fmt::format("damaged JPEG: {}", errors_.text));
        return std::move(image_);
    }

  private:
    /// False: libjpeg failed, and errors_ has its text.
    bool read(std::span<const std::byte> bytes, std::int64_t enough) {
        if (setjmp(errors_.where) != 0) return false;
        jpeg_create_decompress(&info_);
        jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
        jpeg_read_header(&info_, TRUE);
        require_decodable(info_.image_height, info_.image_width);
        choose_output(enough);
        jpeg_start_decompress(&info_);
        take_memory();
        while (info_.output_scanline < info_.output_height) read_row();
        jpeg_finish_decompress(&info_);
        return true;
    }

    void choose_output(std::int64_t enough) {
        const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
        info_.out_color_space = four ? JCS_CMYK : JCS_RGB;
        const std::int64_t shorter = std::min(info_.image_height, info_.image_width);
        info_.scale_num = info_.scale_denom = 8;
        while (enough > 0 && info_.scale_num > 1 && shorter * (info_.scale_num / 2) >= enough * 8)
            info_.scale_num /= 2;
    }

    void take_memory() {
        image_.height = info_.output_height;
        image_.width = info_.output_width;
        image_.pixels.resize(image_.height * image_.width * 3);
        if (info_.out_color_space == JCS_CMYK) row_.resize(static_cast<std::size_t>(image_.width) * 4);
    }

    void read_row() {
        const std::size_t width = info_.output_width;
        JSAMPROW to = image_.pixels.data() + std::size_t{info_.output_scanline} * width * 3;
        if (row_.empty()) {
            jpeg_read_scanlines(&info_, &to, 1);
            return;
        }
        JSAMPROW four = row_.data();
        jpeg_read_scanlines(&info_, &four, 1);
        // Adobe stores the remaining light, other programs the ink.
        const int flip = info_.saw_Adobe_marker ? 0 : 255;
        for (std::size_t pixel = 0; pixel < width; ++pixel, four += 4)
            for (int channel = 0; channel < 3; ++channel)
                *to++ = static_cast<std::uint8_t>(((four[channel] ^ flip) * (four[3] ^ flip) + 127) / 255);
    }

    Errors errors_;
    jpeg_decompress_struct info_ = {};
    Image image_;
    std::vector<std::uint8_t> row_;  // [W, 4]; empty unless it is CMYK
};

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, std::int64_t enough) {
    return JpegFile().decode(bytes, enough);
}

}  // namespace mantissa
