// Any bytes as tokenizer.json: a tokenizer that loads gives back what it encodes, unless it changes texts.
#include <algorithm>
#include <cstdint>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"

namespace {

/// The text after decoding: one space less at its start where the tokenizer says so, and spaces for U+2581
/// where that stands for them.
std::string expected_of(const mantissa::TokenizerParts& parts, std::string_view text) {
    std::string expected(text);
    constexpr std::string_view visible = "\xE2\x96\x81";
    if (!parts.byte_fallback.empty())
        for (std::size_t at = expected.find(visible); at != expected.npos;
             at = expected.find(visible, at + 1))
            expected.replace(at, visible.size(), " ");
    if (parts.first_space == mantissa::FirstSpace::one_dropped && expected.starts_with(' '))
        expected.erase(0, 1);
    return expected;
}

/// Whether texts come back but for that. Unigram's may not: what no token has is unknown, and a text may
/// spell the token of a byte.
bool gives_back(const mantissa::TokenizerParts& parts) {
    using mantissa::NormalizeStep;
    const auto keeps = [](const NormalizeStep& step) {
        return step.kind == NormalizeStep::Kind::prepend || step.kind == NormalizeStep::Kind::visible_spaces;
    };
    return parts.scores.empty() && parts.first_space != mantissa::FirstSpace::all_of_token_dropped &&
           std::ranges::all_of(parts.pipeline.changes, keeps) &&
           std::ranges::none_of(parts.pipeline.cuts,
                                [](const mantissa::CutStep& step) {
                                    return step.behavior == mantissa::CutStep::Behavior::removed ||
                                           step.prefix_space != mantissa::PrefixSpace::never;
                                }) &&
           std::ranges::all_of(parts.specials, &mantissa::SpecialToken::on_request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const auto tokenizer = mantissa::parse_tokenizer_json({text, "fuzz"});
        // A space may have been put before the text.
        const std::string decoded = tokenizer.decode(tokenizer.encode(text));
        if (gives_back(tokenizer.parts()) && !decoded.ends_with(expected_of(tokenizer.parts(), text)))
            __builtin_trap();
    } catch (const mantissa::UserError&) {
    }
    return 0;
}
