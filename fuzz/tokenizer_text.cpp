// Any bytes as text: split by each rule, cut, encoded and decoded they come back, whole and in parts, and
// what a stream decoder gives is valid UTF-8.
#include <cstdint>
#include <optional>
#include <string>

#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/data/unicode.h"

namespace {

mantissa::Tokenizer make_tokenizer(std::optional<std::string_view> expression) {
    mantissa::TokenizerParts parts;
    parts.source = "fuzz";
    parts.pipeline.cuts.clear();
    if (expression)
        parts.pipeline.cuts.push_back({.pattern = *mantissa::TextPattern::of_expression(*expression)});
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

void try_text(const mantissa::Tokenizer& tokenizer, std::string_view text) {
    const auto ids = tokenizer.encode(text);
    require(tokenizer.decode(ids) == text);

    std::vector<mantissa::TokenId> in_parts;
    for (const std::string_view part : mantissa::cut_text(text, 8, tokenizer.safe_cuts()))
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
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const mantissa::Tokenizer tokenizers[] = {
        make_tokenizer(mantissa::gpt2_expression),
        make_tokenizer(
            R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+)"),
        make_tokenizer(" "), make_tokenizer(std::nullopt)};
    for (const auto& tokenizer : tokenizers) try_text(tokenizer, {reinterpret_cast<const char*>(data), size});
    return 0;
}
