// Any bytes as tokenizer.json: a tokenizer that loads gives back what it encodes.
#include <cstdint>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const auto tokenizer = mantissa::parse_tokenizer_json({text, "fuzz"});
        // With add_prefix_space a space may have been put before the text.
        if (!tokenizer.decode(tokenizer.encode(text)).ends_with(text)) __builtin_trap();
    } catch (const mantissa::UserError&) {
    }
    return 0;
}
