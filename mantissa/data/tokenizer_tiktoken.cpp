// tiktoken's rank files (tiktoken/load.py).
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/data/base64.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_vocabulary.h"

namespace mantissa::inline v0 {

namespace {

struct RankLine {
    std::string bytes;
    std::uint64_t rank;
};

std::optional<RankLine> read_line(std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space == line.npos) return std::nullopt;
    auto bytes = decode_base64(line.substr(0, space));
    const std::string_view digits = line.substr(space + 1);
    std::uint64_t rank = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size())
        return std::nullopt;
    return RankLine{std::move(*bytes), rank};
}

/// Refuses vocabularies known to have another split rule; the number of lines identifies them.
void refuse_other_split_rules(const NamedText& ranks, std::size_t lines) {
    struct Known {
        std::size_t lines;
        const char* name;
    };
    constexpr std::array<Known, 3> others = {
        {{100256, "cl100k_base"}, {199998, "o200k_base"}, {128000, "Llama 3"}}};
    for (const Known& known : others)
        if (lines == known.lines)
            throw UserError(
                fmt::format("{}: {} tokens are those of {}, which splits text by another rule than "
                            "GPT-2's; this format says no rule: use its tokenizer.json",
                            ranks.name, lines, known.name));
}

}  // namespace

TokenizerParts read_tiktoken(const NamedText& ranks) {
    TokenizerParts parts;
    parts.source = ranks.name;
    parts.rank_is_id = parts.whole_pieces = true;
    std::size_t lines = 0;
    std::size_t number = 0;
    for (const std::string_view text : lines_of(ranks.text)) {
        ++number;
        if (text.empty()) continue;
        auto line = read_line(text);
        if (!line)
            throw UserError(
                fmt::format("{}: line {}: expected a token in base64, a space and its rank, found {}",
                            ranks.name, number, quoted_excerpt(text)));
        if (line->rank < parts.tokens.size())
            throw UserError(fmt::format("{}: line {}: rank {} is not above the one before it", ranks.name,
                                        number, line->rank));
        // One rank may be missing, for the special token; a second gap is found below.
        if (line->rank > lines + 1)
            throw UserError(fmt::format("{}: line {}: rank {} where {} was expected", ranks.name, number,
                                        line->rank, parts.tokens.size()));
        parts.tokens.resize(line->rank + 1);
        parts.tokens.back() = std::move(line->bytes);
        ++lines;
    }
    refuse_other_split_rules(ranks, lines);
    std::size_t unused = 0;
    while (unused < parts.tokens.size() && !parts.tokens[unused].empty()) ++unused;
    if (unused == parts.tokens.size()) parts.tokens.emplace_back();
    parts.tokens[unused] = "<|endoftext|>";
    parts.specials.push_back({"<|endoftext|>", static_cast<TokenId>(unused)});
    return parts;
}

Tokenizer parse_tiktoken(const NamedText& ranks) { return Tokenizer(read_tiktoken(ranks)); }

}  // namespace mantissa
