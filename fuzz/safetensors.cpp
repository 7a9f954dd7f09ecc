// Any bytes as a safetensors file: refused with a UserError, or indexed with every view within the file and
// all bytes of data accounted for.
#include "mantissa/formats/safetensors.h"

#include <cstdint>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span file(reinterpret_cast<const std::byte*>(data), size);
    try {
        const mantissa::SafetensorsContents contents = mantissa::parse_safetensors(file, "fuzz");
        std::size_t bytes = contents.header_size;
        unsigned sum = 0;
        for (const mantissa::SafetensorsEntry& entry : contents.tensors) {
            for (const std::byte b : entry.data) sum += static_cast<unsigned>(b);
            bytes += entry.data.size();
        }
        mantissa::check(bytes == size && sum <= 255 * size, "tensors and header make up the file");
    } catch (const mantissa::UserError&) {
        return 0;
    }
    return 0;
}
