// Any bytes as text: split, cut, encoded and decoded they come back, whole and in parts, and what a stream
// decoder gives is valid UTF-8.
#include <cstdint>
#include <string>

#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/data/unicode.h"

namespace {

mantissa::Tokenizer make_tokenizer() {
    mantissa::TokenizerParts parts;
    parts.source = "fuzz";
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    constexpr std::pair<int, int> merges[] = {{'a', 'a'}, {'a', 'b'}, {' ', 'a'}, {0xE4, 0xB8}, {256, 256}};
    for (const auto& [left, right] : merges) {
        parts.merges.push_back({left, right, static_cast<mantissa::TokenId>(parts.tokens.size())});
        parts.tokens.push_back(parts.tokens[left] + parts.tokens[right]);
    }
    return mantissa::Tokenizer(std::move(parts));
}

void require(bool holds) {
    if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const mantissa::Tokenizer tokenizer = make_tokenizer();
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto ids = tokenizer.encode(text);
    require(tokenizer.decode(ids) == text);

    std::vector<mantissa::TokenId> in_parts;
    for (const std::string_view part : mantissa::cut_text(text, 8))
        for (const auto id : tokenizer.encode(part)) in_parts.push_back(id);
    require(in_parts == ids);

    mantissa::StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const auto id : ids) streamed += decoder.push(id);
    streamed += decoder.finish();
    for (std::size_t at = 0; at < streamed.size();) {
        const auto step = mantissa::decode_utf8(streamed, at);
        require(step.code_point != mantissa::Utf8Step::invalid);
        at += step.length;
    }
    return 0;
}
