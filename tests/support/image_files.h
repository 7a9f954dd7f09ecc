// Image files, written without the tested code: PNG by hand, uncompressed; JPEG by libjpeg.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#ifdef MANTISSA_TEST_JPEG
#include <jpeglib.h>
#endif

namespace mantissa::testing {

using Samples = std::vector<std::uint8_t>;

/// A smooth image [H, W, 3], different for every `tone`.
inline Samples smooth_image(int height, int width, int tone = 0) {
    Samples pixels;
    for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x)
            for (const int value : {200 * y / height + tone, 200 * x / width, 100 + tone})
                pixels.push_back(static_cast<std::uint8_t>(value));
    return pixels;
}

inline std::string write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
}

inline std::string big_endian(std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
}

inline std::string png_chunk(const std::string& kind, const std::string& data) {
    std::uint32_t crc = ~0u;
    for (const char c : kind + data) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return big_endian(static_cast<std::uint32_t>(data.size())) + kind + data + big_endian(~crc);
}

/// The concatenated lines, each after a filter byte 0, in stored blocks.
inline std::string stored_deflate(const std::string& data) {
    constexpr std::size_t block = 65535;
    std::string bytes = "\x78\x01";
    std::uint32_t a = 1, b = 0;
    for (const char c : data) {
        a = (a + static_cast<unsigned char>(c)) % 65521;
        b = (b + a) % 65521;
    }
    for (std::size_t at = 0; at < data.size(); at += block) {
        const std::size_t size = std::min(block, data.size() - at);
        bytes += at + size == data.size() ? '\1' : '\0';
        for (const std::size_t word : {size, ~size}) {
            bytes += static_cast<char>(word & 0xff);
            bytes += static_cast<char>(word >> 8 & 0xff);
        }
        bytes += data.substr(at, size);
    }
    return bytes + big_endian(b << 16 | a);
}

/// The kind of a PNG's samples.
struct PngKind {
    int bits = 8;
    char color = 2;  ///< 0 grey, 2 red green blue, 6 with alpha
};

inline std::string png_of(int height, int width, const Samples& samples, const PngKind& kind = {}) {
    const std::size_t line = samples.size() / static_cast<std::size_t>(height);
    std::string lines;
    for (std::size_t at = 0; at < samples.size(); ++at) {
        if (at % line == 0) lines += '\0';
        lines += static_cast<char>(samples[at]);
    }
    const std::string header = big_endian(static_cast<std::uint32_t>(width)) +
                               big_endian(static_cast<std::uint32_t>(height)) + static_cast<char>(kind.bits) +
                               kind.color + std::string(3, '\0');
    return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", stored_deflate(lines)) +
           png_chunk("IEND", "");
}

#ifdef MANTISSA_TEST_JPEG
/// A JPEG of 1 (grey), 3 (red, green, blue) or 4 (Adobe's CMYK: the remaining light) samples a pixel.
inline std::string jpeg_of(int height, int width, const Samples& samples) {
    const int components = static_cast<int>(samples.size()) / (height * width);
    jpeg_compress_struct info = {};
    jpeg_error_mgr errors = {};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_height = static_cast<JDIMENSION>(height);
    info.image_width = static_cast<JDIMENSION>(width);
    info.input_components = components;
    info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    jpeg_start_compress(&info, TRUE);
    Samples copy = samples;
    for (int y = 0; y < height; ++y) {
        JSAMPROW row = copy.data() + y * width * components;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    const std::string made(reinterpret_cast<const char*>(bytes), size);
    std::free(bytes);
    return made;
}
#endif

/// A record of CIFAR-10: a class, and at row y, column x of plane c the byte 50 c + 2 y + 3 x + tone.
inline std::string cifar_record(int label, int tone) {
    std::string record(1, static_cast<char>(label));
    for (int i = 0; i < 3072; ++i)
        record += static_cast<char>((i / 1024 * 50 + i % 1024 / 32 * 2 + i % 32 * 3 + tone) & 0xff);
    return record;
}

}  // namespace mantissa::testing
