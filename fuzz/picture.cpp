// Any bytes as a picture: refused with a UserError, or as many pixels as its sides say.
#include "mantissa/formats/picture.h"

#include <cstdint>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::int64_t enough = 8;
    try {
        const mantissa::Picture picture =
            mantissa::decode_picture({reinterpret_cast<const std::byte*>(data), size}, "fuzz", enough);
        mantissa::check(
            picture.height > 0 && picture.width > 0 &&
                picture.pixels.size() == static_cast<std::size_t>(picture.height * picture.width * 3),
            "there are as many pixels as the sides say");
    } catch (const mantissa::UserError&) {
        return 0;
    }
    return 0;
}
