// Any bytes as vocab.json and merges.txt, cut at the first zero byte. Since few inputs hold a token for each
// byte, the 256 bytes are put before the merges of the second half, too, so that its merges are reached.
#include <cstdint>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_files.h"

namespace {

void load(std::string_view vocabulary, std::string_view merges) {
    try {
        const auto tokenizer =
            mantissa::parse_vocabulary_and_merges({vocabulary, "vocabulary"}, {merges, "merges"});
        if (tokenizer.decode(tokenizer.encode(merges)) != merges) __builtin_trap();
    } catch (const mantissa::UserError&) {
    }
}

/// A vocabulary of the 256 bytes and the results of those merges that look well formed.
std::string vocabulary_for(std::string_view merges) {
    std::string json = "{";
    int id = 0;
    const auto add = [&](const std::string& spelling) {
        json += (id == 0 ? "\"" : ",\"") +
                (spelling == "\"" || spelling == "\\" ? "\\" + spelling : spelling) +
                "\":" + std::to_string(id);
        ++id;
    };
    for (const std::uint8_t byte : mantissa::bytes_in_token_order())
        add(mantissa::spell_bytes(std::string(1, static_cast<char>(byte))));
    while (!merges.empty()) {
        const std::string_view line = merges.substr(0, merges.find('\n'));
        merges.remove_prefix(std::min(merges.size(), line.size() + 1));
        if (const auto space = line.find(' '); space != line.npos && line.find_first_of("\"\\") == line.npos)
            add(std::string(line.substr(0, space)) + std::string(line.substr(space + 1)));
    }
    return json + "}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto zero = text.find('\0');
    if (zero != text.npos) load(text.substr(0, zero), text.substr(zero + 1));
    load(vocabulary_for(text), text);
    return 0;
}
