#include "mantissa/data/tokenizer_split.h"

#include <algorithm>

namespace mantissa::inline v0 {

namespace {

/// Writes to `changed` what a step makes of the text; false if that is the text itself.
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
        // A piece that began here might get a space that it would not get within a larger one.
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
        // Only a lead byte can begin a character, and ASCII spaces are frequent enough to wait for.
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
