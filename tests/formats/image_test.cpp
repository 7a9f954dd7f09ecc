// Images of JPEG and PNG: what kinds are converted to, and what is said of files that are none.
#include "mantissa/formats/image.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/image_files.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::png_of;
using testing::Samples;
using testing::smooth_image;

Image decode(const std::string& bytes, std::int64_t enough = 0) {
    return decode_image(std::as_bytes(std::span(bytes)), "my.file", enough);
}

std::string decoding_error(const std::string& bytes) {
    return error_of([&] { decode(bytes); });
}

TEST(Images, WhatIsNoImageIsSaidToBeNone) {
    EXPECT_EQ(decoding_error(""), "my.file: the file is empty; a JPEG or PNG was expected");
    // Beginnings as Pillow 13 writes them.
    for (const auto& [bytes, kind] : {std::pair{std::string("GIF89a\1\0", 8), "GIF"},
                                      {std::string("RIFF\x26\0\0\0WEBPVP8 ", 16), "WebP"},
                                      {std::string("BM\x3a\0\0\0", 6), "BMP"},
                                      {std::string("II*\0\x0e\0\0\0", 8), "TIFF"},
                                      {std::string("\0\0\0\x20"
                                                   "ftypavif",
                                                   12),
                                       "AVIF"}})
        EXPECT_EQ(decoding_error(bytes),
                  std::string("my.file: neither JPEG nor PNG, but ") + kind + "; convert it to one of these");
    EXPECT_EQ(decoding_error("abcdef"),
              "my.file: neither JPEG nor PNG: it begins with the bytes 61 62 63 64");
    EXPECT_EQ(decoding_error("\xff\xd8"), "my.file: neither JPEG nor PNG: it begins with the bytes ff d8");
}

#ifndef MANTISSA_TEST_PNG

TEST(Png, IsNotReadByABuildWithoutItsLibrary) {
    EXPECT_EQ(
        decoding_error(png_of(1, 1, {1, 2, 3})),
        "my.file: this build reads no PNG: libpng was missing when it was built (libpng-dev on Debian)");
}

#else

TEST(Png, HasThePixelsThatWereWritten) {
    const Samples pixels = smooth_image(7, 5);
    const Image image = decode(png_of(7, 5, pixels));
    EXPECT_EQ(image.height, 7);
    EXPECT_EQ(image.width, 5);
    EXPECT_EQ(image.pixels, pixels);
}

std::string from_hex(const std::string& digits) {
    std::string bytes;
    for (std::size_t at = 0; at < digits.size(); at += 2)
        bytes += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
    return bytes;
}

/// png_pixels.txt is of bench/peers/png_pixels.py.
TEST(Png, EveryKindHasThePixelsThatPillowGives) {
    std::ifstream cases(MANTISSA_SOURCE_DIR "/tests/formats/png_pixels.txt");
    int count = 0;
    for (std::string name, file, pixels; cases >> name >> file >> pixels; ++count) {
        const std::string expected = from_hex(pixels);
        EXPECT_EQ(decode(from_hex(file)).pixels, Samples(expected.begin(), expected.end())) << name;
    }
    EXPECT_EQ(count, 22);
}

/// Pillow makes white of all but the darkest there.
TEST(Png, GreyOfSixteenBitsKeepsItsUpperByte) {
    EXPECT_EQ(decode(png_of(1, 2, {0x12, 0x34, 0xff, 0xff}, {.bits = 16, .color = 0})).pixels,
              (Samples{0x12, 0x12, 0x12, 0xff, 0xff, 0xff}));
}

TEST(Png, DamageIsNamed) {
    const std::string whole = png_of(20, 20, smooth_image(20, 20));
    EXPECT_EQ(decoding_error(whole.substr(0, 30)).rfind("my.file: damaged PNG: ", 0), 0u);
    EXPECT_EQ(decoding_error(whole.substr(0, whole.size() / 2)).rfind("my.file: damaged PNG: ", 0), 0u);
    std::string flipped = whole;
    flipped[500] = static_cast<char>(flipped[500] ^ 0x10);
    EXPECT_EQ(decoding_error(flipped).rfind("my.file: damaged PNG: ", 0), 0u);
}

TEST(Png, AHugeOneIsRefusedByItsHeader) {
    std::string huge = png_of(1, 1, {1, 2, 3});
    const std::string header =
        testing::big_endian(20000) + testing::big_endian(30000) + std::string({8, 2, 0, 0, 0});
    huge = huge.substr(0, 8) + testing::png_chunk("IHDR", header) + huge.substr(8 + 25);
    EXPECT_EQ(decoding_error(huge),
              "my.file: 20000 x 30000 pixels are too many: at most 134217728 are read; make it smaller");
}

#endif
#ifndef MANTISSA_TEST_JPEG

TEST(Jpeg, IsNotReadByABuildWithoutItsLibrary) {
    EXPECT_EQ(
        decoding_error("\xff\xd8\xff\xe0"),
        "my.file: this build reads no JPEG: libjpeg was missing when it was built (libjpeg-dev on Debian)");
}

#else

using testing::jpeg_of;

/// The largest difference of a sample.
int distance(const Samples& a, const Samples& b) {
    if (a.size() != b.size()) return 1000;
    int most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
}

TEST(Jpeg, HasNearlyThePixelsThatWereWritten) {
    const Samples pixels = smooth_image(21, 35);
    const Image image = decode(jpeg_of(21, 35, pixels));
    EXPECT_EQ(image.height, 21);
    EXPECT_EQ(image.width, 35);
    EXPECT_LE(distance(image.pixels, pixels), 12);
}

TEST(Jpeg, GreyAndCmykAreConverted) {
    const Image grey = decode(jpeg_of(8, 8, Samples(64, 90)));
    EXPECT_LE(distance(grey.pixels, Samples(192, 90)), 1);
    // A half of the light is left by black ink, and of that all red, a half of the green, none of the blue.
    Samples cmyk;
    for (int i = 0; i < 64; ++i)
        for (const int left : {255, 128, 0, 128}) cmyk.push_back(static_cast<std::uint8_t>(left));
    const Image image = decode(jpeg_of(8, 8, cmyk));
    Samples expected;
    for (int i = 0; i < 64; ++i)
        for (const int value : {128, 64, 0}) expected.push_back(static_cast<std::uint8_t>(value));
    EXPECT_LE(distance(image.pixels, expected), 2);
}

/// As torchvision's ImageFolder and Pillow's convert("RGB") leave it.
TEST(Jpeg, IsNotTurnedAsACameraNotes) {
    const std::string plain = jpeg_of(8, 16, smooth_image(8, 16));
    const std::string turned = std::string("Exif\0\0MM\0*\0\0\0\x08\0\x01", 16) +
                               std::string("\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 16);
    const Image image =
        decode(plain.substr(0, 2) + std::string("\xff\xe1\0\x22", 4) + turned + plain.substr(2));
    EXPECT_EQ(image.height, 8);
    EXPECT_EQ(image.pixels, decode(plain).pixels);
}

TEST(Jpeg, IsDecodedAtAPartOfItsSizeWhereThatIsEnough) {
    const std::string bytes = jpeg_of(48, 64, smooth_image(48, 64));
    for (const auto& [enough, height] :
         {std::pair{0, 48}, {25, 48}, {24, 24}, {13, 24}, {12, 12}, {6, 6}, {1, 6}})
        EXPECT_EQ(decode(bytes, enough).height, height) << enough;
    EXPECT_LE(distance(decode(bytes, 12).pixels, smooth_image(12, 16)), 30);
}

TEST(Jpeg, DamageIsNamed) {
    const std::string whole = jpeg_of(40, 40, smooth_image(40, 40));
    EXPECT_EQ(decoding_error(whole.substr(0, whole.size() / 2)),
              "my.file: damaged JPEG: Premature end of JPEG file");
    EXPECT_EQ(decoding_error(whole.substr(0, 20)), "my.file: damaged JPEG: Premature end of JPEG file");
    EXPECT_EQ(decoding_error(whole + "and more behind it"), "no error");
    // Bytes that belong to nothing, before a marker, cost no pixel.
    std::string stray = whole;
    stray.insert(whole.find("\xff\xc0"), "ab");
    EXPECT_EQ(decode(stray).pixels, decode(whole).pixels);
}

TEST(Jpeg, AHugeOneIsRefusedByItsHeader) {
    std::string huge = jpeg_of(8, 8, smooth_image(8, 8));
    const std::size_t frame = huge.find("\xff\xc0");
    ASSERT_NE(frame, huge.npos);
    huge.replace(frame + 5, 4, "\x75\x30\x4e\x20");
    EXPECT_EQ(decoding_error(huge),
              "my.file: 20000 x 30000 pixels are too many: at most 134217728 are read; make it smaller");
}

#endif

}  // namespace
}  // namespace mantissa
