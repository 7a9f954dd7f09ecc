// tokenizer.json of Hugging Face's tokenizers: BPE, byte-level or with byte_fallback as in SentencePiece, and
// Unigram. Field names follow tokenizers/src/models/{bpe,unigram}/serialization.rs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
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
        const bool unigram = is_unigram(model);
        const bool falls_back = flag(model, "byte_fallback", "model.byte_fallback");
        const bool ignores_merges = flag(model, "ignore_merges", "model.ignore_merges");
        TokenizerPipeline pipeline = read_tokenizer_pipeline(root_,
                                                             falls_back ? TokenizerKind::text_and_bytes
                                                             : unigram  ? TokenizerKind::text
                                                                        : TokenizerKind::bytes,
                                                             name_);
        std::vector<double> scores;
        if (unigram)
            scores = read_unigram(model);
        else
            read_merging_model(model);
        read_added_tokens();
        using enum SpelledVocabulary::Spelling;
        const auto spelling = falls_back ? text_and_bytes : unigram ? text : bytes;
        TokenizerParts parts = std::move(spelled_).finish(spelling);
        if (unigram) parts.unknown = read_unknown(model, scores.size());
        parts.scores = std::move(scores);
        parts.whole_pieces = ignores_merges;
        parts.pipeline = std::move(pipeline.text);
        parts.first_space = pipeline.first_space;
        parts.first_tokens = std::move(pipeline.first_tokens);
        parts.last_tokens = std::move(pipeline.last_tokens);
        spell_as_found(spelling, parts);
        return parts;
    }

  private:
    [[noreturn]] void unsupported(const std::string& what) const {
        throw UserError(fmt::format(
            "{}: {} is not supported: mantissa reads BPE, byte-level or with byte_fallback, and Unigram",
            name_, what));
    }

    bool flag(const Json& object, const char* key, const std::string& what) const {
        return read_flag(object, key, false, name_, what);
    }

    void require_absent(const Json& object, const char* key, const std::string& what) const {
        const Json& value = member_or_null(object, key);
        if (value.is_null() || value == false || value == "") return;
        unsupported(value.is_structured() ? what : fmt::format("{} = {}", what, json_excerpt(value)));
    }

    bool is_unigram(const Json& model) const {
        // Files older than the field hold BPE; a model of another type lacks merges.
        const Json& type = member_or_null(model, "type");
        if (type.is_null()) return false;
        const std::string& name = require_string(type, name_, "model.type");
        if (name != "BPE" && name != "Unigram") unsupported("the model " + name);
        return name == "Unigram";
    }

    /// Adds the tokens and returns their scores.
    std::vector<double> read_unigram(const Json& model) {
        const Json& vocabulary = require_member(model, "vocab", name_, "model");
        if (!vocabulary.is_array() || vocabulary.empty())
            throw UserError(
                fmt::format("{}: model.vocab: expected an array of tokens and their scores, found {}", name_,
                            json_excerpt(vocabulary)));
        std::vector<double> scores;
        for (const Json& entry : vocabulary) {
            if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || entry[0] == "" ||
                !entry[1].is_number())
                throw UserError(
                    fmt::format("{}: model.vocab: entry {}: expected [\"TOKEN\", SCORE], found {}", name_,
                                scores.size() + 1, json_excerpt(entry)));
            spelled_.add_next(entry[0].get_ref<const std::string&>());
            scores.push_back(entry[1].get<double>());
        }
        return scores;
    }

    TokenId read_unknown(const Json& model, std::size_t tokens) const {
        const Json& unknown = member_or_null(model, "unk_id");
        if (unknown.is_null()) unsupported("a Unigram without unk_id");
        const std::uint64_t id = require_unsigned(unknown, name_, "model.unk_id");
        if (id >= tokens)
            throw UserError(
                fmt::format("{}: model.unk_id is {}, but the vocabulary has {} tokens", name_, id, tokens));
        return static_cast<TokenId>(id);
    }

    void read_merging_model(const Json& model) {
        for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
            require_absent(model, key, fmt::format("model.{}", key));
        // unk_token and fuse_unk have no effect: with tokens for all 256 bytes nothing is unknown.
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
            static const std::string nothing;  // same type, so that the conditional makes no temporary copy
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
            const auto is = [&](const char* key) {
                return flag(token, key, fmt::format("{} {}", what, key));
            };
            spelled_.add_special(
                {.text = text,
                 .id = static_cast<TokenId>(std::min<std::uint64_t>(id, std::numeric_limits<TokenId>::max())),
                 .on_request = is("special"),
                 .takes_spaces_before = is("lstrip"),
                 .takes_spaces_behind = is("rstrip"),
                 .single_word = is("single_word"),
                 .normalized = is("normalized")});
        }
    }

    /// Spells a token that is found in the changed text in its changed form; a token that merges make keeps
    /// its spelling.
    static void spell_as_found(SpelledVocabulary::Spelling spelling, TokenizerParts& parts) {
        std::vector<bool> merges(parts.tokens.size());
        for (const Merge& merge : parts.merges)
            for (const TokenId id : {merge.left, merge.right, merge.result}) merges[id] = true;
        std::string changed;
        for (std::size_t id = 0; id < parts.scores.size(); ++id) merges[id] = true;
        for (const SpecialToken& token : parts.specials)
            if (token.normalized && !merges[token.id])
                parts.tokens[token.id] = decoded_added_token(
                    normalize(parts.pipeline, token.text, TextPlace::at_start, changed), spelling);
    }

    const std::string& name_;
    Json root_;
    SpelledVocabulary spelled_;
};

}  // namespace

TokenizerParts read_tokenizer_json(const NamedText& json) { return Reader(json).read(); }

Tokenizer parse_tokenizer_json(const NamedText& json) { return Tokenizer(read_tokenizer_json(json)); }

}  // namespace mantissa
