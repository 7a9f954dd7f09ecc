// Field names follow tokenizers/src/{normalizers,pre_tokenizers,processors,decoders}.
#include "mantissa/data/tokenizer_json_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_split.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

/// The library uses Rust's Unicode 17.0: the last digits are newer than our tables.
constexpr std::string_view digits = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

/// Punctuation of the library's Unicode 8.0 table: it lacks later additions and keeps two characters that are
/// no longer punctuation.
constexpr std::string_view punctuation =
    R"((?![\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B4E}\x{1B4F}\x{1B7D}-\x{1B7F}\x{2E43}-\x{2E4F}\x{2E52}-\x{2E5D})"
    R"(\x{10D6E}\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89}\x{113D4}\x{113D5}\x{113D7}\x{113D8})"
    R"(\x{1144B}-\x{1144F}\x{1145A}\x{1145B}\x{1145D}\x{11660}-\x{1166C}\x{116B9}\x{1183B}\x{11944}-\x{11946})"
    R"(\x{119E2}\x{11A3F}-\x{11A46}\x{11A9A}-\x{11A9C}\x{11A9E}-\x{11AA2}\x{11B00}-\x{11B09}\x{11BE1})"
    R"(\x{11C41}-\x{11C45}\x{11C70}\x{11C71}\x{11EF7}\x{11EF8}\x{11F43}-\x{11F4F}\x{11FFF}\x{12FF1}\x{12FF2})"
    R"(\x{16D6D}-\x{16D6F}\x{16E97}-\x{16E9A}\x{16FE2}\x{1E5FF}\x{1E95E}\x{1E95F}]))"
    R"([\p{P}!-/:-@\[-`{-~\x{166D}\x{111C9}])";

/// Words of Rust's regular expressions (\w), and runs of characters that are neither words nor white space.
constexpr std::string_view words =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189}]+|[^\s\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9})"
    R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]+)";

class PipelineReader {
  public:
    PipelineReader(const Json& root, TokenizerKind kind, const std::string& source)
        : root_(root), kind_(kind), source_(source) {}

    TokenizerPipeline read() {
        for (const Json& step : steps_of("normalizer", "normalizers")) read_change(step);
        for (const Json& step : steps_of("pre_tokenizer", "pretokenizers")) read_cut(step);
        if (kind_ == TokenizerKind::bytes && !spelled_) unsupported("a pre_tokenizer without ByteLevel");
        if (kind_ != TokenizerKind::bytes && spaces_ == Spaces::plain)
            unsupported("a tokenizer that leaves spaces as they are");
        if (kind_ == TokenizerKind::bytes)
            read_byte_decoder();
        else
            read_text_decoder();
        for (const Json& step : steps_of("post_processor", "processors")) read_post_processor(step);
        return std::move(pipeline_);
    }

  private:
    [[noreturn]] void unsupported(const std::string& what) const {
        throw UserError(fmt::format("{}: {} is not supported: mantissa reads {}", source_, what,
                                    kind_ == TokenizerKind::bytes
                                        ? "byte-level BPE as GPT-2's, LLaMA 3's and Qwen's"
                                        : "BPE with byte_fallback and Unigram, as LLaMA 2's and T5's"));
    }

    std::string type_of(const Json& component, const std::string& what) const {
        return require_string(require_member(component, "type", source_, what), source_, what + ".type");
    }

    /// The component `key`, or, for a sequence, its list `parts`.
    std::vector<Json> steps_of(const char* key, const char* parts) const {
        const Json& component = member_or_null(root_, key);
        if (component.is_null()) return {};
        if (type_of(component, key) != "Sequence") return {component};
        const Json& list = require_member(component, parts, source_, key);
        if (!list.is_array())
            throw UserError(fmt::format("{}: {}.{}: expected an array, found {}", source_, key, parts,
                                        json_excerpt(list)));
        return list.get<std::vector<Json>>();
    }

    bool flag(const Json& object, const char* key, bool absent, const std::string& what) const {
        return read_flag(object, key, absent, source_, fmt::format("{}.{}", what, key));
    }

    bool replaces(const Json& step, std::string_view from, std::string_view to) const {
        const Json& pattern = member_or_null(step, "pattern");
        return type_of(step, "a step") == "Replace" && pattern == Json{{"String", from}} &&
               member_or_null(step, "content") == to;
    }

    TextPattern read_pattern(const Json& step, const std::string& what) const {
        const Json& pattern = require_member(step, "pattern", source_, what);
        const Json& literal = member_or_null(pattern, "String");
        if (literal.is_string() && literal != "")
            return TextPattern::of_text(literal.get<std::string>(), spaces_);
        const Json& spelled = member_or_null(pattern, "Regex");
        if (!spelled.is_string()) unsupported(fmt::format("the pattern {}", json_excerpt(pattern)));
        auto expression = TextPattern::of_expression(spelled.get<std::string>(), spaces_);
        if (!expression)
            unsupported(fmt::format("{} in the pattern {}", expression.reason(), json_excerpt(spelled)));
        return *expression;
    }

    /// The text that a step inserts, with spaces spelled as at that step.
    std::string content_of(const Json& step, const char* key, const std::string& what) const {
        const std::string content = require_string(require_member(step, key, source_, what), source_, what);
        if (spaces_ == Spaces::plain) return content;
        if (content.find(' ') != content.npos)
            unsupported(what + " of a space behind one that replaces them");
        std::string spaced;
        return std::string(with_plain_spaces(content, spaced));
    }

    // Changes of a text.

    void read_change(const Json& step) {
        const std::string type = type_of(step, "normalizer");
        NormalizeStep change{.kind = NormalizeStep::Kind::normal_form};
        const bool compatible = type == "NFKC" || type == "NFKD";
        if (type == "NFC" || type == "NFD" || compatible) {
            if (compatible && spaces_ == Spaces::visible) unsupported(type + " behind a Replace of spaces");
            change.form = type == "NFC"    ? NormalForm::nfc
                          : type == "NFD"  ? NormalForm::nfd
                          : type == "NFKC" ? NormalForm::nfkc
                                           : NormalForm::nfkd;
        } else if (kind_ != TokenizerKind::bytes && replaces(step, " ", visible_space)) {
            return make_spaces_visible();
        } else if (type == "Replace") {
            change.kind = NormalizeStep::Kind::replace;
            change.pattern = read_pattern(step, "the normalizer Replace");
            change.content = content_of(step, "content", "the normalizer Replace");
        } else if (type == "Precompiled") {
            if (spaces_ == Spaces::visible) unsupported("a Precompiled behind a Replace of spaces");
            const auto bytes =
                decode_base64(require_string(require_member(step, "precompiled_charsmap", source_, type),
                                             source_, "precompiled_charsmap"));
            if (!bytes)
                throw UserError(
                    fmt::format("{}: the normalizer's precompiled_charsmap is no base64", source_));
            auto map = CharacterMap::of_bytes(*bytes);
            if (!map)
                throw UserError(
                    fmt::format("{}: the normalizer's precompiled_charsmap {}", source_, map.reason()));
            change.kind = NormalizeStep::Kind::characters;
            change.map = std::move(*map);
        } else if (type == "Prepend") {
            change.kind = NormalizeStep::Kind::prepend;
            change.content = content_of(step, "prepend", "the normalizer Prepend");
        } else if (type == "Strip") {
            if (spaces_ == Spaces::visible) unsupported("a Strip behind a Replace of spaces");
            change.kind = NormalizeStep::Kind::strip;
            change.at_start = flag(step, "strip_left", false, "normalizer");
            change.at_end = flag(step, "strip_right", false, "normalizer");
        } else {
            unsupported("the normalizer " + type);
        }
        pipeline_.text.changes.push_back(std::move(change));
    }

    /// Makes U+0020 mean U+2581 from here on. Steps that prepend right before it now run after it.
    void make_spaces_visible() {
        if (spaces_ == Spaces::visible) return;
        spaces_ = Spaces::visible;
        auto& changes = pipeline_.text.changes;
        auto place = changes.end();
        while (place != changes.begin() && (place - 1)->kind == NormalizeStep::Kind::prepend) {
            --place;
            std::string spaced;
            place->content = std::string(with_plain_spaces(std::string(place->content), spaced));
        }
        changes.insert(place, {.kind = NormalizeStep::Kind::visible_spaces});
    }

    // How it is cut.

    void read_cut(const Json& step) {
        const std::string type = type_of(step, "pre_tokenizer");
        if (spelled_) unsupported(fmt::format("the pre_tokenizer {} behind ByteLevel", type));
        CutStep cut;
        if (type == "ByteLevel" && kind_ == TokenizerKind::bytes) {
            spelled_ = true;
            if (flag(step, "use_regex", true, "pre_tokenizer")) cut.pattern = gpt2_pattern();
            if (flag(step, "add_prefix_space", true, "pre_tokenizer"))
                cut.prefix_space = PrefixSpace::unless_there;
        } else if (type == "Split") {
            // A visible space cannot match a plain one.
            if (spaces_ == Spaces::visible && member_or_null(step, "pattern") == Json{{"String", " "}} &&
                !flag(step, "invert", false, "pre_tokenizer"))
                return;
            cut.pattern = read_pattern(step, "the pre_tokenizer Split");
            cut.behavior = read_behavior(step, type);
            cut.inverted = flag(step, "invert", false, "pre_tokenizer");
        } else if (type == "Digits") {
            cut.pattern = pattern_of(digits);
            if (!flag(step, "individual_digits", false, "pre_tokenizer"))
                cut.behavior = CutStep::Behavior::contiguous;
        } else if (type == "Punctuation") {
            cut.pattern = pattern_of(punctuation);
            if (!member_or_null(step, "behavior").is_null()) cut.behavior = read_behavior(step, type);
        } else if (type == "WhitespaceSplit" || type == "Whitespace" || type == "BertPreTokenizer") {
            pipeline_.text.cuts.push_back(
                {.pattern = pattern_of("\\s"), .behavior = CutStep::Behavior::removed});
            if (type == "WhitespaceSplit") return;
            cut.pattern = pattern_of(type == "Whitespace" ? words : punctuation);
        } else if (type == "CharDelimiterSplit") {
            const Json& delimiter = require_member(step, "delimiter", source_, type);
            if (!delimiter.is_string() || delimiter == "")
                unsupported(fmt::format("the delimiter {}", json_excerpt(delimiter)));
            cut.pattern = TextPattern::of_text(delimiter.get<std::string>(), spaces_);
            cut.behavior = CutStep::Behavior::removed;
        } else if (type == "Metaspace" && kind_ != TokenizerKind::bytes) {
            cut = read_metaspace(step);
        } else {
            unsupported("the pre_tokenizer " + type);
        }
        if (cut != CutStep{}) pipeline_.text.cuts.push_back(std::move(cut));
    }

    TextPattern pattern_of(std::string_view expression) const {
        return *TextPattern::of_expression(expression, spaces_);
    }

    CutStep::Behavior read_behavior(const Json& step, const std::string& type) const {
        using enum CutStep::Behavior;
        constexpr std::pair<const char*, CutStep::Behavior> names[] = {
            {"Isolated", isolated},
            {"Removed", removed},
            {"MergedWithPrevious", merged_with_previous},
            {"MergedWithNext", merged_with_next},
            {"Contiguous", contiguous}};
        const Json& given = require_member(step, "behavior", source_, "the pre_tokenizer " + type);
        for (const auto& [name, behavior] : names)
            if (given == name) return behavior;
        unsupported(fmt::format("the behavior {}", json_excerpt(given)));
    }

    void require_visible_space(const Json& metaspace) const {
        const Json& replacement = member_or_null(metaspace, "replacement");
        if (replacement != visible_space)
            unsupported(fmt::format("the Metaspace of {}", json_excerpt(replacement)));
    }

    std::string prepend_scheme(const Json& metaspace, const char* where) const {
        const Json& given = member_or_null(metaspace, "prepend_scheme");
        const bool adds = flag(metaspace, "add_prefix_space", true, where);  // before tokenizers 0.15
        if (given.is_null()) return adds ? "always" : "never";
        return require_string(given, source_, fmt::format("{}.prepend_scheme", where));
    }

    CutStep read_metaspace(const Json& step) {
        require_visible_space(step);
        CutStep cut{.visible_spaces = spaces_ == Spaces::plain};
        spaces_ = Spaces::visible;
        const std::string scheme = prepend_scheme(step, "pre_tokenizer");
        if (scheme == "always")
            cut.prefix_space = PrefixSpace::unless_there;
        else if (scheme == "first")
            cut.prefix_space = PrefixSpace::unless_there_at_start;
        else if (scheme != "never")
            unsupported(
                fmt::format("the prepend_scheme {}", json_excerpt(member_or_null(step, "prepend_scheme"))));
        if (flag(step, "split", true, "pre_tokenizer")) {
            static const TextPattern space = TextPattern::of_text(" ");
            cut.pattern = space;
            cut.behavior = CutStep::Behavior::merged_with_next;
        }
        return cut;
    }

    // How tokens become text again.

    void read_byte_decoder() {
        for (const Json& step : steps_of("decoder", "decoders"))
            if (const std::string type = type_of(step, "decoder"); type != "ByteLevel" && type != "Fuse")
                unsupported("the decoder " + type);
    }

    /// Decodes bytes, and U+2581 to spaces, in either order; then the first space may be dropped.
    void read_text_decoder() {
        bool spaces = false, bytes = false, fused = false;
        for (const Json& step : steps_of("decoder", "decoders")) {
            const std::string type = type_of(step, "decoder");
            if (type == "Metaspace") {
                require_visible_space(step);
                spaces = true;
                if (prepend_scheme(step, "decoder") != "never")
                    pipeline_.first_space = FirstSpace::all_of_token_dropped;
            } else if (type == "ByteFallback") {
                bytes = true;
            } else if (type == "Fuse") {
                fused = true;
            } else if (type == "Strip") {
                if (member_or_null(step, "content") != " " || member_or_null(step, "start") != 1 ||
                    member_or_null(step, "stop") != 0)
                    unsupported("a Strip of anything but one space at the start");
                if (!spaces || !fused) unsupported("a Strip of each token");
                pipeline_.first_space = FirstSpace::one_dropped;
            } else if (replaces(step, visible_space, " ")) {
                spaces = true;
            } else {
                unsupported("the decoder " + type);
            }
        }
        if (!spaces || bytes != (kind_ == TokenizerKind::text_and_bytes))
            unsupported(bytes && spaces ? "a decoder that makes bytes of a model without byte_fallback"
                                        : "a decoder that does not make spaces and bytes again");
    }

    // Tokens added around a text's own.

    void read_post_processor(const Json& step) {
        const std::string type = type_of(step, "post_processor");
        if (type == "ByteLevel") return;  // affects only offsets, which we do not produce
        std::vector<TokenId> first, last;
        if (type == "TemplateProcessing") {
            read_template(step, first, last);
        } else if (type == "RobertaProcessing" || type == "BertProcessing") {
            for (const auto& [key, ids] : {std::pair("cls", &first), std::pair("sep", &last)}) {
                const Json& token = require_member(step, key, source_, "post_processor");
                if (!token.is_array() || token.size() != 2)
                    unsupported(fmt::format("the {} {}", key, json_excerpt(token)));
                ids->push_back(id_of(token[1], "post_processor"));
            }
        } else {
            unsupported("the post_processor " + type);
        }
        // Each step's tokens surround the earlier steps' tokens.
        pipeline_.first_tokens.insert(pipeline_.first_tokens.begin(), first.begin(), first.end());
        pipeline_.last_tokens.insert(pipeline_.last_tokens.end(), last.begin(), last.end());
    }

    void read_template(const Json& step, std::vector<TokenId>& first, std::vector<TokenId>& last) const {
        int texts = 0;
        const Json& single = require_member(step, "single", source_, "post_processor");
        if (!single.is_array()) unsupported(fmt::format("the template {}", json_excerpt(single)));
        for (const Json& part : single) {
            if (!member_or_null(part, "Sequence").is_null()) {
                ++texts;
                continue;
            }
            const Json& token = require_member(part, "SpecialToken", source_, "post_processor.single");
            add_tokens(step,
                       require_string(require_member(token, "id", source_, "SpecialToken"), source_,
                                      "SpecialToken.id"),
                       texts > 0 ? last : first);
        }
        if (texts != 1) unsupported(fmt::format("a template with the text {} times", texts));
    }

    TokenId id_of(const Json& id, const char* where) const {
        return static_cast<TokenId>(std::min<std::uint64_t>(require_unsigned(id, source_, where),
                                                            std::numeric_limits<TokenId>::max()));
    }

    void add_tokens(const Json& step, const std::string& name, std::vector<TokenId>& tokens) const {
        const Json& known = require_member(step, "special_tokens", source_, "post_processor");
        const Json& ids = require_member(require_member(known, name, source_, "special_tokens"), "ids",
                                         source_, "special_tokens");
        if (!ids.is_array()) unsupported(fmt::format("the ids {}", json_excerpt(ids)));
        for (const Json& id : ids) tokens.push_back(id_of(id, "special_tokens.ids"));
    }

    const Json& root_;
    TokenizerKind kind_;
    const std::string& source_;
    TokenizerPipeline pipeline_;
    Spaces spaces_ = Spaces::plain;  // at the current step
    bool spelled_ = false;           // the text is bytes in their alphabet at this step
};

}  // namespace

const nlohmann::json& member_or_null(const nlohmann::json& object, const char* key) {
    static const nlohmann::json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
}

bool read_flag(const nlohmann::json& object, const char* key, bool absent, const std::string& source,
               const std::string& what) {
    const nlohmann::json& value = member_or_null(object, key);
    if (value.is_null()) return absent;
    if (!value.is_boolean())
        throw UserError(
            fmt::format("{}: {}: expected true or false, found {}", source, what, json_excerpt(value)));
    return value.get<bool>();
}

TokenizerPipeline read_tokenizer_pipeline(const nlohmann::json& root, TokenizerKind kind,
                                          const std::string& source) {
    return PipelineReader(root, kind, source).read();
}

}  // namespace mantissa
