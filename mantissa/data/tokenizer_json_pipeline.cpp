// Field names after tokenizers/src/{normalizers,pre_tokenizers,processors,decoders}.
#include "mantissa/data/tokenizer_json_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

/// U+2581, which stands for a space.
constexpr const char* visible_space = "\xE2\x96\x81";

/// The rules of tokenizer_split.h, as files spell them.
constexpr std::pair<const char*, Split> expressions[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Split::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Split::llama3}};

class PipelineReader {
  public:
    PipelineReader(const Json& root, TokenizerKind kind, const std::string& source)
        : root_(root), kind_(kind), source_(source) {}

    TokenizerPipeline read() {
        if (kind_ == TokenizerKind::bytes) {
            read_byte_level();
        } else {
            read_text_level();
        }
        for (const Json& step : steps_of("post_processor", "processors")) read_post_processor(step);
        return std::move(pipeline_);
    }

  private:
    [[noreturn]] void unsupported(const std::string& what) const {
        throw UserError(fmt::format("{}: {} is not supported: mantissa reads {}", source_, what,
                                    kind_ == TokenizerKind::bytes
                                        ? "byte-level BPE as GPT-2's and LLaMA 3's"
                                        : "BPE with byte_fallback as LLaMA 2's, SentencePiece's"));
    }

    std::string type_of(const Json& component, const std::string& what) const {
        return require_string(require_member(component, "type", source_, what), source_, what + ".type");
    }

    /// The component `key`, or the parts of it where it is a sequence, which lists them as `parts`.
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

    bool replaces(const Json& step, const char* from, const char* to) const {
        const Json& pattern = member_or_null(step, "pattern");
        return type_of(step, "a step") == "Replace" && pattern == Json{{"String", from}} &&
               member_or_null(step, "content") == to;
    }

    // Byte-level.

    void read_byte_level() {
        for (const Json& step : steps_of("normalizer", "normalizers"))
            unsupported("the normalizer " + type_of(step, "normalizer"));
        for (const Json& step : steps_of("decoder", "decoders"))
            if (const std::string type = type_of(step, "decoder"); type != "ByteLevel")
                unsupported("the decoder " + type);
        if (require_member(root_, "pre_tokenizer", source_, "top level").is_null())
            unsupported("a tokenizer without pre_tokenizer");
        const std::vector<Json> steps = steps_of("pre_tokenizer", "pretokenizers");
        for (const Json& step : steps)
            if (const std::string type = type_of(step, "pre_tokenizer");
                type != "ByteLevel" && type != "Split")
                unsupported("the pre_tokenizer " + type);
        if (steps.size() == 1 && type_of(steps[0], "pre_tokenizer") == "ByteLevel") {
            if (!flag(steps[0], "use_regex", true, "pre_tokenizer"))
                unsupported("pre_tokenizer.use_regex = false");
            if (flag(steps[0], "add_prefix_space", true, "pre_tokenizer"))
                pipeline_.prefix_space = PrefixSpace::unless_there;
            return;
        }
        const bool cuts_then_spells = steps.size() == 2 && type_of(steps[0], "pre_tokenizer") == "Split" &&
                                      type_of(steps[1], "pre_tokenizer") == "ByteLevel";
        if (!cuts_then_spells) unsupported("a pre_tokenizer other than one Split and one ByteLevel");
        read_split(steps[0]);
        if (flag(steps[1], "use_regex", true, "pre_tokenizer") ||
            flag(steps[1], "add_prefix_space", true, "pre_tokenizer"))
            unsupported("a ByteLevel behind a Split that cuts again or adds spaces");
    }

    void read_split(const Json& step) {
        if (member_or_null(step, "behavior") != "Isolated" || flag(step, "invert", false, "pre_tokenizer"))
            unsupported("a Split that does not isolate its pieces");
        const Json& pattern = member_or_null(step, "pattern");
        for (const auto& [expression, split] : expressions)
            if (pattern == Json{{"Regex", expression}}) {
                pipeline_.split = split;
                return;
            }
        const Json& spelled = member_or_null(pattern, "Regex");
        unsupported(fmt::format("the pattern {}", json_excerpt(spelled.is_null() ? pattern : spelled)));
    }

    // With byte_fallback.

    void read_text_level() {
        pipeline_.split = Split::nowhere;
        bool spaced = false;
        for (const Json& step : steps_of("normalizer", "normalizers")) {
            const std::string type = type_of(step, "normalizer");
            if (type == "Prepend" && member_or_null(step, "prepend") == visible_space)
                pipeline_.prefix_space = PrefixSpace::always;
            else if (replaces(step, " ", visible_space))
                spaced = true;
            else
                unsupported("the normalizer " + type);
        }
        for (const Json& step : steps_of("pre_tokenizer", "pretokenizers")) {
            const std::string type = type_of(step, "pre_tokenizer");
            if (type != "Metaspace" || spaced) unsupported("the pre_tokenizer " + type);
            read_metaspace(step);
            spaced = true;
        }
        if (!spaced) unsupported("a tokenizer that leaves spaces as they are");
        read_text_decoder();
    }

    void require_visible_space(const Json& metaspace) const {
        const Json& replacement = member_or_null(metaspace, "replacement");
        if (replacement != visible_space)
            unsupported(fmt::format("the Metaspace of {}", json_excerpt(replacement)));
    }

    void read_metaspace(const Json& step) {
        require_visible_space(step);
        const Json& given = member_or_null(step, "prepend_scheme");
        const bool adds = flag(step, "add_prefix_space", true, "pre_tokenizer");  // before tokenizers 0.15
        const std::string scheme = given.is_null()
                                       ? (adds ? "always" : "never")
                                       : require_string(given, source_, "pre_tokenizer.prepend_scheme");
        if (scheme == "always")
            pipeline_.prefix_space = PrefixSpace::unless_there;
        else if (scheme == "first")
            pipeline_.prefix_space = PrefixSpace::unless_there_at_start;
        else if (scheme != "never")
            unsupported(fmt::format("the prepend_scheme {}", json_excerpt(given)));
        if (flag(step, "split", true, "pre_tokenizer")) pipeline_.split = Split::before_each_space;
    }

    /// Bytes become bytes again and U+2581 spaces, in whichever order; then the first may go.
    void read_text_decoder() {
        bool spaces = false, bytes = false;
        for (const Json& step : steps_of("decoder", "decoders")) {
            const std::string type = type_of(step, "decoder");
            if (type == "Metaspace") {
                require_visible_space(step);
                spaces = true;
                pipeline_.strip_first_space = member_or_null(step, "prepend_scheme") != "never";
            } else if (type == "ByteFallback") {
                bytes = true;
            } else if (type == "Strip") {
                if (member_or_null(step, "content") != " " || member_or_null(step, "start") != 1 ||
                    member_or_null(step, "stop") != 0)
                    unsupported("a Strip of anything but one space at the start");
                pipeline_.strip_first_space = true;
            } else if (replaces(step, visible_space, " ")) {
                spaces = true;
            } else if (type != "Fuse") {
                unsupported("the decoder " + type);
            }
        }
        if (!spaces || !bytes) unsupported("a decoder that does not make spaces and bytes again");
    }

    // Both.

    void read_post_processor(const Json& step) {
        const std::string type = type_of(step, "post_processor");
        if (type == "ByteLevel") return;  // of offsets, which nobody asks for here
        if (type != "TemplateProcessing") unsupported("the post_processor " + type);
        bool behind = false;
        const Json& single = require_member(step, "single", source_, "post_processor");
        if (!single.is_array()) unsupported(fmt::format("the template {}", json_excerpt(single)));
        for (const Json& part : single) {
            if (!member_or_null(part, "Sequence").is_null()) {
                behind = true;
                continue;
            }
            if (behind) unsupported("a template with tokens behind the text");
            const Json& token = require_member(part, "SpecialToken", source_, "post_processor.single");
            add_first_token(step, require_string(require_member(token, "id", source_, "SpecialToken"),
                                                 source_, "SpecialToken.id"));
        }
    }

    void add_first_token(const Json& step, const std::string& name) {
        const Json& known = require_member(step, "special_tokens", source_, "post_processor");
        const Json& ids = require_member(require_member(known, name, source_, "special_tokens"), "ids",
                                         source_, "special_tokens");
        if (!ids.is_array()) unsupported(fmt::format("the ids {}", json_excerpt(ids)));
        for (const Json& id : ids)
            pipeline_.first_tokens.push_back(static_cast<TokenId>(std::min<std::uint64_t>(
                require_unsigned(id, source_, "special_tokens.ids"), std::numeric_limits<TokenId>::max())));
    }

    const Json& root_;
    TokenizerKind kind_;
    const std::string& source_;
    TokenizerPipeline pipeline_;
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
