#include "mantissa/data/tokenizer_split.h"

#include <algorithm>

#include "mantissa/data/text_pattern.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

/// Clusters of characters (UAX #29, Unicode 17.0): preceding marks, a character, following marks. Clusters
/// with several other characters (Hangul, emojis, conjuncts) have six bytes or more; their characters count
/// one by one, so the expression need not join them.
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

/// The text for the shortest prefix of the cluster in the table, which replaces the whole cluster, as in the
/// library.
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

namespace {

/// Writes the step's result to `changed`; false if it equals the text.
bool apply(const NormalizeStep& step, std::string_view text, std::string& changed) {
    switch (step.kind) {
        case NormalizeStep::Kind::normal_form:
            return normalize_unicode(text, step.form, changed);
        case NormalizeStep::Kind::visible_spaces:
            return with_plain_spaces(text, changed).data() != text.data();
        case NormalizeStep::Kind::characters:
            return step.map->apply(text, changed);
        case NormalizeStep::Kind::prepend:
            changed = step.content;
            changed += text;
            return true;
        case NormalizeStep::Kind::replace: {
            TextPattern::Match match = step.pattern->find(text, 0);
            if (match.begin == text.size()) return false;
            changed.clear();
            std::size_t copied = 0;
            for (; match.begin < text.size(); match = step.pattern->find(text, copied)) {
                changed.append(text, copied, match.begin - copied);
                changed += step.content;
                copied = match.end;
            }
            changed.append(text, copied);
            return true;
        }
        case NormalizeStep::Kind::strip:
            break;
    }
    const auto is_space = [&](std::size_t at) {
        return character_class(decode_utf8(text, at).code_point) == CharacterClass::space;
    };
    std::size_t begin = 0, end = text.size();
    while (step.at_start && begin < end && is_space(begin)) begin += decode_utf8(text, begin).length;
    while (step.at_end && end > begin && is_space(character_before(text, end)))
        end = character_before(text, end);
    changed = text.substr(begin, end - begin);
    return true;
}

}  // namespace

std::string_view with_plain_spaces(std::string_view text, std::string& changed) {
    std::size_t found = text.find(visible_space);
    if (found == text.npos) return text;
    changed.clear();
    std::size_t at = 0;
    for (; found != text.npos; found = text.find(visible_space, at)) {
        changed.append(text, at, found - at);
        changed += ' ';
        at = found + visible_space.size();
    }
    changed.append(text, at);
    return changed;
}

std::string_view normalize(const TextPipeline& pipeline, std::string_view text, TextPlace place,
                           std::string& changed) {
    std::string next;
    for (const NormalizeStep& step : pipeline.changes) {
        if (text.empty()) break;
        if (step.kind == NormalizeStep::Kind::prepend && place == TextPlace::continues) continue;
        if (!apply(step, text, next)) continue;
        changed.swap(next);
        text = changed;
    }
    return text;
}

bool SafeCuts::before(CharacterClass kind, char character, const TextPipeline& pipeline) const {
    bool first = true;
    for (const CutStep& step : pipeline.cuts) {
        // A piece that begins here might get a space that it does not get inside a larger piece.
        if (!first && step.prefix_space != PrefixSpace::never && character != ' ') return false;
        first = false;
        if (!step.pattern) continue;
        if (step.pattern->may_span(kind, character)) return false;
        const bool merges = step.behavior == CutStep::Behavior::merged_with_next;
        if (step.behavior == CutStep::Behavior::merged_with_previous || (merges && step.inverted))
            return false;
        if (step.behavior != CutStep::Behavior::contiguous && step.pattern->always_takes(character))
            return true;
        if (merges) return false;
    }
    return false;
}

SafeCuts::SafeCuts(const TextPipeline& pipeline) {
    using enum CharacterClass;
    bool normal_form = false;
    for (const NormalizeStep& step : pipeline.changes) {
        if (step.kind == NormalizeStep::Kind::replace || step.kind == NormalizeStep::Kind::strip ||
            step.kind == NormalizeStep::Kind::characters)
            return;
        normal_form |= step.kind == NormalizeStep::Kind::normal_form;
        visible_spaces_ |= step.kind == NormalizeStep::Kind::visible_spaces;
    }
    for (const CutStep& step : pipeline.cuts) visible_spaces_ |= step.visible_spaces;
    for (const char character : white) {
        bool all = true;
        for (const CharacterClass kind : {letter, number, other}) {
            bool& safe = safe_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(character)];
            safe = before(kind, character, pipeline);
            all &= safe;
        }
        // A letter may become a letter and a mark.
        for (const CharacterClass kind : {letter, number, other})
            if (normal_form && !all)
                safe_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(character)] = false;
    }
}

void SafeCuts::leave_whole(std::string_view token, bool takes_spaces_behind, const TextPipeline& pipeline) {
    const auto safe_behind = [&](std::size_t end) -> std::array<bool, 128>& {
        const char32_t last = decode_utf8(token, character_before(token, end)).code_point;
        return safe_[static_cast<std::size_t>(character_class(last))];
    };
    for (std::size_t at = 1; at < token.size(); ++at)
        if (const auto byte = static_cast<unsigned char>(token[at]); byte < 0x80)
            safe_behind(at)[byte] = false;
    if (token.empty()) return;
    const bool prepends = std::ranges::any_of(pipeline.changes, [](const NormalizeStep& step) {
        return step.kind == NormalizeStep::Kind::prepend;
    });
    const bool prefixes =
        !pipeline.cuts.empty() && pipeline.cuts[0].prefix_space == PrefixSpace::unless_there;
    for (const char character : white)
        if (takes_spaces_behind || prepends || (prefixes && character != ' '))
            safe_behind(token.size())[static_cast<std::size_t>(character)] = false;
}

std::size_t SafeCuts::next(std::string_view text, std::size_t wanted) const {
    for (std::size_t at = std::max<std::size_t>(wanted, 1); at < text.size(); ++at) {
        // Skips to white space: it is ASCII, and frequent enough to wait for.
        const auto byte = static_cast<unsigned char>(text[at]);
        if (byte > ' ' || std::ranges::find(white, text[at]) == white.end()) continue;
        const std::size_t last = character_before(text, at);
        if (visible_spaces_ && text.substr(last).starts_with(visible_space)) continue;
        if (safe_[static_cast<std::size_t>(character_class(decode_utf8(text.substr(0, at), last).code_point))]
                 [byte])
            return at;
    }
    return text.size();
}

}  // namespace mantissa
