// Any bytes as a .npy file: refused with a UserError, or an array whose data has the size of its shape.
#include "mantissa/formats/npy.h"

#include <cstdint>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const mantissa::NpyArray array =
            mantissa::parse_npy({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
        mantissa::check(array.data.size() == array.count * array.item_size && array.data.size() < size,
                        "the data has the size of the shape");
    } catch (const mantissa::UserError&) {
        return 0;
    }
    return 0;
}
