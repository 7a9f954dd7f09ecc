#include "mantissa/formats/image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::array<std::uint8_t, 3> jpeg_begins = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> png_begins = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool begins_with(std::span<const std::byte> bytes, std::span<const std::uint8_t> signature) {
    return bytes.size() >= signature.size() &&
           std::equal(signature.begin(), signature.end(), bytes.begin(),
                      [](std::uint8_t a, std::byte b) { return std::byte{a} == b; });
}

/// Unsupported kinds of images, with the bytes that identify them at an offset.
struct OtherImageKind {
    std::size_t at;
    std::string_view bytes, name;
};
constexpr std::array<OtherImageKind, 8> other_image_kinds = {{{8, "WEBP", "WebP"},
                                                              {0, "GIF8", "GIF"},
                                                              {0, "BM", "BMP"},
                                                              {0, {"II*\0", 4}, "TIFF"},
                                                              {0, {"MM\0*", 4}, "TIFF"},
                                                              {4, "ftypavif", "AVIF"},
                                                              {4, "ftyphei", "HEIC"},
                                                              {0, {"\xff\x0a", 2}, "JPEG XL"}}};

/// Empty: unknown.
std::string_view name_of_kind(std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const OtherImageKind& kind : other_image_kinds)
        if (text.size() > kind.at && text.substr(kind.at).starts_with(kind.bytes)) return kind.name;
    return {};
}

Image decode(std::span<const std::byte> bytes, std::int64_t enough) {
    if (bytes.empty()) throw UserError("the file is empty; a JPEG or PNG was expected");
    if (begins_with(bytes, jpeg_begins)) return decode_jpeg(bytes, enough);
    if (begins_with(bytes, png_begins)) return decode_png(bytes);
    if (const std::string_view kind = name_of_kind(bytes); !kind.empty())
        throw UserError(fmt::format("neither JPEG nor PNG, but {}; convert it to one of these", kind));
    std::vector<std::string> first;
    for (const std::byte byte : bytes.first(std::min<std::size_t>(4, bytes.size())))
        first.push_back(fmt::format("{:02x}", std::to_integer<int>(byte)));
    throw UserError(fmt::format("neither JPEG nor PNG: it begins with the bytes {}", fmt::join(first, " ")));
}

}  // namespace

void require_decodable(std::uint64_t height, std::uint64_t width) {
    if (height * width > static_cast<std::uint64_t>(max_pixels))
        throw UserError(fmt::format("{} x {} pixels are too many: at most {} are read; make it smaller",
                                    width, height, max_pixels));
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name, std::int64_t enough) {
    try {
        return decode(bytes, enough);
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}: {}", name, error.what()));
    }
}

}  // namespace mantissa
