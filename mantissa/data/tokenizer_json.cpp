// tokenizer.json of Hugging Face's tokenizers: the part of it that is BPE, byte-level as GPT-2's and LLaMA
// 3's or with byte_fallback as SentencePiece's. Field names after tokenizers/src/models/bpe/serialization.rs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/tokenizer_json_pipeline.h"
#include "mantissa/data/tokenizer_vocabulary.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

class Reader {
  public:
    explicit Reader(const NamedText& json)
        : name_(json.name), root_(parse_strict_json(json.text, json.name)), spelled_(json.name) {
        if (!root_.is_object())
            throw UserError(fmt::format("{}: expected an object, found {}", name_, json_excerpt(root_)));
    }

    TokenizerParts read() {
        require_absent(root_, "truncation", "truncation");
        require_absent(root_, "padding", "padding");
        const Json& model = require_member(root_, "model", name_, "top level");
        const bool falls_back = flag(model, "byte_fallback", "model.byte_fallback");
        const bool ignores_merges = flag(model, "ignore_merges", "model.ignore_merges");
        if (falls_back && ignores_merges) unsupported("ignore_merges beside byte_fallback");
        const TokenizerPipeline pipeline =
            read_tokenizer_pipeline(root_, falls_back ? TokenizerKind::text : TokenizerKind::bytes, name_);
        read_model(model);
        read_added_tokens();
        TokenizerParts parts =
            std::move(spelled_).finish(falls_back       ? SpelledVocabulary::Spelling::text
                                       : ignores_merges ? SpelledVocabulary::Spelling::whole_bytes
                                                        : SpelledVocabulary::Spelling::bytes);
        parts.split = pipeline.split;
        parts.prefix_space = pipeline.prefix_space;
        parts.strip_first_space = pipeline.strip_first_space;
        parts.first_tokens = pipeline.first_tokens;
        return parts;
    }

  private:
    [[noreturn]] void unsupported(const std::string& what) const {
        throw UserError(fmt::format(
            "{}: {} is not supported: mantissa reads BPE, byte-level or with byte_fallback", name_, what));
    }

    bool flag(const Json& object, const char* key, const std::string& what) const {
        return read_flag(object, key, false, name_, what);
    }

    void require_absent(const Json& object, const char* key, const std::string& what) const {
        const Json& value = member_or_null(object, key);
        if (value.is_null() || value == false || value == "") return;
        unsupported(value.is_structured() ? what : fmt::format("{} = {}", what, json_excerpt(value)));
    }

    void read_model(const Json& model) {
        // Files older than the field hold BPE; a model of another type lacks merges.
        const Json& type = member_or_null(model, "type");
        if (!type.is_null() && require_string(type, name_, "model.type") != "BPE")
            unsupported("the model " + type.get<std::string>());
        for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
            require_absent(model, key, fmt::format("model.{}", key));
        // unk_token and fuse_unk say nothing here: with tokens for all 256 bytes nothing is unknown.
        spelled_.add_all(require_member(model, "vocab", name_, "model"), "model.vocab");
        read_merges(require_member(model, "merges", name_, "model"));
    }

    void read_merges(const Json& merges) {
        if (!merges.is_array())
            throw UserError(
                fmt::format("{}: model.merges: expected an array, found {}", name_, json_excerpt(merges)));
        std::size_t number = 0;
        for (const Json& merge : merges) {
            const std::string where = fmt::format("entry {}", ++number);
            if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
                spelled_.add_merge(merge[0].get_ref<const std::string&>(),
                                   merge[1].get_ref<const std::string&>(), where);
                continue;
            }
            static const std::string nothing;  // of the same type, lest the conditional make a temporary copy
            const std::string_view text = merge.is_string() ? merge.get_ref<const std::string&>() : nothing;
            const std::size_t space = text.find(' ');
            if (space == text.npos || text.find(' ', space + 1) != text.npos)
                throw UserError(
                    fmt::format("{}: model.merges: {}: expected \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"], "
                                "found {}",
                                name_, where, json_excerpt(merge)));
            spelled_.add_merge(text.substr(0, space), text.substr(space + 1), where);
        }
    }

    void read_added_tokens() {
        const Json& added = member_or_null(root_, "added_tokens");
        if (added.is_null()) return;
        if (!added.is_array())
            throw UserError(
                fmt::format("{}: added_tokens: expected an array, found {}", name_, json_excerpt(added)));
        for (const Json& token : added) {
            const std::string& text = require_string(require_member(token, "content", name_, "added_tokens"),
                                                     name_, "added_tokens content");
            const auto id = require_unsigned(require_member(token, "id", name_, "added_tokens"), name_,
                                             "added_tokens id");
            const std::string what = fmt::format("the added token {}", quoted_excerpt(text));
            for (const char* key : {"lstrip", "rstrip", "single_word"})
                require_absent(token, key, fmt::format("{} with {}", what, key));
            if (!flag(token, "special", what + " special"))
                unsupported(what + ", which is not special but found in any text,");
            spelled_.add_special(text, id);
        }
    }

    const std::string& name_;
    Json root_;
    SpelledVocabulary spelled_;
};

}  // namespace

TokenizerParts read_tokenizer_json(const NamedText& json) { return Reader(json).read(); }

Tokenizer parse_tokenizer_json(const NamedText& json) { return Tokenizer(read_tokenizer_json(json)); }

}  // namespace mantissa
