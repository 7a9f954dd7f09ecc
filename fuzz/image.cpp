// Any bytes as a image: refused with a UserError, or as many pixels as its sides say.
#include "mantissa/formats/image.h"

#include <cstdint>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::int64_t enough = 8;
    try {
        const mantissa::Image image =
            mantissa::decode_image({reinterpret_cast<const std::byte*>(data), size}, "fuzz", enough);
        mantissa::check(image.height > 0 && image.width > 0 &&
                            image.pixels.size() == static_cast<std::size_t>(image.height * image.width * 3),
                        "there are as many pixels as the sides say");
    } catch (const mantissa::UserError&) {
        return 0;
    }
    return 0;
}
