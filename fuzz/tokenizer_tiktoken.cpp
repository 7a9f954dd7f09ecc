// Any bytes as a .tiktoken file, alone and after the lines of the 256 bytes.
#include <cstdint>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"

namespace {

void load(const std::string& lines, std::string_view text) {
    try {
        const auto tokenizer = mantissa::parse_tiktoken({lines, "fuzz"});
        if (tokenizer.decode(tokenizer.encode(text)) != text) __builtin_trap();
    } catch (const mantissa::UserError&) {
    }
}

std::string lines_of_bytes() {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string lines;
    for (unsigned byte = 0; byte < 256; ++byte)
        lines +=
            std::string{digits[byte >> 2], digits[(byte & 3) << 4]} + "== " + std::to_string(byte) + "\n";
    return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    static const std::string bytes = lines_of_bytes();
    load(text, text);
    load(bytes + text, text);
    return 0;
}
