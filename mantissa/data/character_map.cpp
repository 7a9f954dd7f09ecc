#include "mantissa/data/character_map.h"

#include "mantissa/data/text_pattern.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

/// Clusters of characters (UAX #29, of Unicode 17.0): what stands before, a character, marks. Those of more
/// than one other character, which are Hangul's, emojis' and conjuncts, have six bytes and more; of these
/// each character counts by itself, and so they need not be told from their parts.
constexpr std::string_view clusters =
    R"(\r\n|[\x{600}-\x{605}\x{6DD}\x{70F}\x{890}\x{891}\x{8E2}\x{D4E}\x{110BD}\x{110CD}\x{111C2}\x{111C3}\x{113D1})"
    R"(\x{1193F}\x{11941}\x{11A84}-\x{11A89}\x{11D46}\x{11F02}]*)"
    R"([^\x{0}-\x{1F}\x{7F}-\x{9F}\x{AD}\x{61C}\x{180E}\x{200B}\x{200E}\x{200F}\x{2028}-\x{202E}\x{2060}-\x{206F})"
    R"(\x{FEFF}\x{FFF0}-\x{FFFB}\x{13430}-\x{1343F}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0000}-\x{E001F})"
    R"(\x{E0080}-\x{E00FF}\x{E01F0}-\x{E0FFF}])"
    R"((?:(?![\x{102B}\x{102C}\x{1038}\x{1062}-\x{1064}\x{1067}-\x{106D}\x{1083}\x{1087}-\x{108C}\x{108F})"
    R"(\x{109A}-\x{109C}\x{1A61}\x{1A63}\x{1A64}\x{AA7B}\x{AA7D}\x{11720}\x{11721}]))"
    R"([\p{M}\x{E33}\x{EB3}\x{1ACF}-\x{1ADD}\x{1AE0}-\x{1AEB}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{10EFA}\x{10EFB})"
    R"(\x{11B60}-\x{11B67}\x{1E6E3}\x{1E6E6}\x{1E6EE}\x{1E6EF}\x{1E6F5}\x{1F3FB}-\x{1F3FF}\x{E0020}-\x{E007F}])*)"
    R"(|[\s\S])";

constexpr std::size_t longest_cluster = 5;

// A unit of the trie.
constexpr std::uint32_t label_of(std::uint32_t unit) { return unit & (1U << 31 | 0xFF); }
constexpr std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }
constexpr bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr std::uint32_t value_of(std::uint32_t unit) { return unit & ~(1U << 31); }

}  // namespace

Expected<CharacterMap> CharacterMap::of_bytes(std::string_view bytes) {
    const auto word = [&](std::size_t at) {
        std::uint32_t value = 0;
        for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
        return value;
    };
    constexpr std::size_t header = 4;
    if (bytes.size() < header) return Unexpected{"ends before its size"};
    const std::size_t size = word(0);
    if (size < 4 || size % 4 != 0 || size > bytes.size() - header)
        return Unexpected{"has a trie of another size"};
    auto table = std::make_shared<Table>();
    for (std::size_t at = header; at < header + size; at += 4) table->units.push_back(word(at));
    table->texts = bytes.substr(header + size);
    return CharacterMap(std::move(table));
}

/// The text for the shortest beginning of the cluster that is in the table: it stands for all of the cluster,
/// as in the library.
std::optional<std::string_view> CharacterMap::find(std::string_view cluster) const {
    const auto& [units, texts] = *table_;
    std::size_t node = offset_of(units[0]);
    for (const char c : cluster) {
        const auto byte = static_cast<unsigned char>(c);
        node ^= byte;
        if (byte == 0 || node >= units.size() || label_of(units[node]) != byte) return std::nullopt;
        const std::uint32_t unit = units[node];
        node ^= offset_of(unit);
        if (!has_value(unit)) continue;
        if (node >= units.size() || value_of(units[node]) > texts.size()) return std::nullopt;
        const std::string_view text = std::string_view(texts).substr(value_of(units[node]));
        return text.substr(0, text.find('\0'));
    }
    return std::nullopt;
}

bool CharacterMap::apply(std::string_view text, std::string& changed) const {
    static const TextPattern cluster_pattern = *TextPattern::of_expression(clusters);
    bool changes = false;
    std::size_t copied = 0;
    const auto replace = [&](std::size_t begin, std::size_t end) {
        const auto found = find(text.substr(begin, end - begin));
        if (!found) return false;
        if (!changes) changed.clear();
        changes = true;
        changed.append(text, copied, begin - copied);
        changed += *found;
        copied = end;
        return true;
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = cluster_pattern.find(text, at).end;
        if (end - at > longest_cluster || !replace(at, end))
            for (std::size_t next = at; at < end; at = next) {
                next += decode_utf8(text, at).length;
                replace(at, next);
            }
        at = end;
    }
    if (changes) changed.append(text, copied);
    return changes;
}

bool CharacterMap::operator==(const CharacterMap& other) const { return *table_ == *other.table_; }

}  // namespace mantissa
