// The files of a tokenizer, the pair of vocabulary and merges, and writing that pair.
#include "mantissa/data/tokenizer_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/text_file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_json_pipeline.h"
#include "mantissa/data/tokenizer_vocabulary.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

/// Adds the merges of a file with one "LEFT RIGHT" a line; the first line may be a comment.
void read_merge_lines(const NamedText& merges, SpelledVocabulary& vocabulary) {
    std::size_t line = 0;
    for (const std::string_view text : lines_of(merges.text)) {
        ++line;
        if (line == 1 && text.starts_with("#version")) continue;
        const std::size_t space = text.find(' ');
        const bool two = space != text.npos && space > 0 && space + 1 < text.size() &&
                         text.find(' ', space + 1) == text.npos;
        if (!two)
            throw UserError(
                fmt::format("{}: line {}: expected two tokens with one space between them, found {}",
                            merges.name, line, quoted_excerpt(text)));
        vocabulary.add_merge(text.substr(0, space), text.substr(space + 1), fmt::format("line {}", line));
    }
}

/// Files of another library beside these, which describe a tokenizer further. They are kept, and read for the
/// tokens that begin and end a text.
constexpr std::array<const char*, 3> companions = {"tokenizer_config.json", "special_tokens_map.json",
                                                   "chat_template.jinja"};

void keep_companions(const fs::path& folder, TokenizerParts& parts) {
    for (const char* name : companions)
        if (fs::is_regular_file(folder / name) && fs::file_size(folder / name) > 0)
            parts.files[name] = read_file(folder / name);
}

/// The token that the library's files name, as "eos_token"; none if the tokenizer lacks it.
std::optional<TokenId> token_named(const char* role, const TokenizerParts& parts) {
    for (const char* name : companions) {
        const auto file = parts.files.find(name);
        if (file == parts.files.end() || !std::string_view(name).ends_with(".json")) continue;
        const nlohmann::json root = parse_strict_json(file->second, name, {.rounds_integers = true});
        const nlohmann::json& given = member_or_null(root, role);
        const nlohmann::json& text = given.is_object() ? member_or_null(given, "content") : given;
        if (!text.is_string()) continue;
        const auto token = std::ranges::find(parts.tokens, text.get_ref<const std::string&>());
        if (token == parts.tokens.end()) return std::nullopt;
        return static_cast<TokenId>(token - parts.tokens.begin());
    }
    return std::nullopt;
}

/// Names of a pair's vocabulary and merges: Hugging Face's, which are also used for writing, then GPT-2's.
struct PairOfFiles {
    const char *vocabulary, *merges;
};
constexpr std::array<PairOfFiles, 2> pairs_of_files = {
    {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}}};
constexpr std::array<const char*, 2> single_files = {"tokenizer.json", "tokenizer.tiktoken"};

bool both_there(const fs::path& folder, const PairOfFiles& pair) {
    return fs::exists(folder / pair.vocabulary) && fs::exists(folder / pair.merges);
}

TokenizerParts load_pair(const fs::path& folder, const PairOfFiles& pair) {
    const fs::path vocabulary = folder / pair.vocabulary, merges = folder / pair.merges;
    // Only tokenizer.json describes additional tokens and the cuts at them.
    if (const fs::path added = folder / "added_tokens.json";
        fs::exists(added) && !parse_strict_json(read_file(added), added.string()).empty())
        throw UserError(
            fmt::format("{}: tokens beside those of {} are not read from here; save the tokenizer as "
                        "tokenizer.json, which holds both",
                        added.string(), pair.vocabulary));
    std::map<std::string, std::string> files = {{"vocab.json", read_file(vocabulary)},
                                                {"merges.txt", read_file(merges)}};
    TokenizerParts parts = read_vocabulary_and_merges({files["vocab.json"], vocabulary.string()},
                                                      {files["merges.txt"], merges.string()});
    parts.files = std::move(files);
    return parts;
}

TokenizerParts load_file(const fs::path& path) {
    std::string text = read_file(path);
    if (path.extension() != ".tiktoken" && path.extension() != ".json")
        throw UserError(fmt::format(
            "{}: expected a tokenizer's directory, tokenizer.json or a .tiktoken file", path.string()));
    const bool ranks = path.extension() == ".tiktoken";
    TokenizerParts parts =
        ranks ? read_tiktoken({text, path.string()}) : read_tokenizer_json({text, path.string()});
    parts.files = {{ranks ? "tokenizer.tiktoken" : "tokenizer.json", std::move(text)}};
    return parts;
}

/// Throws UserError if two pairs differ: both have equal standing.
void require_pairs_agree(const fs::path& folder, const TokenizerParts& taken) {
    if (!both_there(folder, pairs_of_files[0]) || !both_there(folder, pairs_of_files[1])) return;
    if (same_tokens(taken, load_pair(folder, pairs_of_files[1]))) return;
    throw UserError(
        fmt::format("{}: vocab.json and merges.txt hold another tokenizer than encoder.json and vocab.bpe; "
                    "remove the pair that the model was not trained with",
                    folder.string()));
}

/// The most complete file decides: tokenizer.json has the cutting rule and the added tokens; pairs have added
/// tokens, by spelling; ranks have neither.
TokenizerParts load_folder(const fs::path& folder) {
    if (fs::exists(folder / "tokenizer.json")) return load_file(folder / "tokenizer.json");
    for (const PairOfFiles& pair : pairs_of_files) {
        if (!both_there(folder, pair)) continue;
        TokenizerParts parts = load_pair(folder, pair);
        require_pairs_agree(folder, parts);
        return parts;
    }
    if (fs::exists(folder / "tokenizer.tiktoken")) return load_file(folder / "tokenizer.tiktoken");
    throw UserError(
        fmt::format("{}: holds no tokenizer: expected tokenizer.json, or vocab.json and merges.txt, or "
                    "encoder.json and vocab.bpe, or tokenizer.tiktoken{}",
                    folder.string(), unread_tokenizer(folder)));
}

}  // namespace

bool same_tokens(const TokenizerParts& a, const TokenizerParts& b) {
    const auto specials_of = [](const TokenizerParts& parts) {
        std::map<TokenId, SpecialToken> specials;
        for (const SpecialToken& token : parts.specials) specials[token.id] = token;
        return specials;
    };
    return a.tokens == b.tokens && a.merges == b.merges && specials_of(a) == specials_of(b) &&
           a.rank_is_id == b.rank_is_id && a.whole_pieces == b.whole_pieces && a.pipeline == b.pipeline &&
           a.byte_fallback == b.byte_fallback && a.scores == b.scores && a.unknown == b.unknown &&
           a.first_space == b.first_space && a.first_tokens == b.first_tokens &&
           a.last_tokens == b.last_tokens;
}

TokenizerParts read_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges) {
    SpelledVocabulary spelled(vocabulary.name);
    spelled.add_all(parse_strict_json(vocabulary.text, vocabulary.name), "vocabulary");
    read_merge_lines(merges, spelled);
    return std::move(spelled).finish();
}

Tokenizer parse_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges) {
    return Tokenizer(read_vocabulary_and_merges(vocabulary, merges));
}

Tokenizer load_tokenizer(const fs::path& path) {
    if (!fs::exists(path))
        throw UserError(fmt::format(
            "{}: does not exist; a tokenizer is a folder with tokenizer.json, or with vocab.json and "
            "merges.txt, or a file such as tokenizer.json",
            path.string()));
    const bool is_folder = fs::is_directory(path);
    const fs::path folder = is_folder ? path : path.parent_path();
    TokenizerParts parts = is_folder ? load_folder(path) : load_file(path);
    keep_companions(folder, parts);
    const HfTokenIds ids = read_hf_token_ids(folder);
    for (const std::int64_t id : ids.ends) parts.ends.push_back(static_cast<TokenId>(id));
    const auto is_token = [&](std::int64_t id) { return id < std::ssize(parts.tokens); };
    if (const auto end = token_named("eos_token", parts); end && std::ranges::none_of(ids.ends, is_token))
        parts.ends = {*end};
    if (ids.begin && *ids.begin < std::ssize(parts.tokens)) parts.begin = static_cast<TokenId>(*ids.begin);
    if (!ids.begin) parts.begin = token_named("bos_token", parts);
    return Tokenizer(std::move(parts));
}

bool holds_tokenizer(const fs::path& directory) {
    return std::ranges::any_of(pairs_of_files,
                               [&](const PairOfFiles& pair) { return both_there(directory, pair); }) ||
           std::ranges::any_of(single_files, [&](const char* name) { return fs::exists(directory / name); });
}

std::string unread_tokenizer(const fs::path& directory) {
    for (const char* name : {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json",
                             "vocab.json", "encoder.json", "vocab.txt", "tokenizer_config.json"})
        if (fs::exists(directory / name))
            return fmt::format(
                "; its {} alone is not enough: save the tokenizer as tokenizer.json (in Python "
                "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) does)",
                name);
    return "";
}

std::vector<std::string> tokenizer_file_names() {
    std::vector<std::string> names(single_files.begin(), single_files.end());
    names.insert(names.end(), companions.begin(), companions.end());
    for (const PairOfFiles& pair : pairs_of_files)
        for (const char* name : {pair.vocabulary, pair.merges}) names.emplace_back(name);
    return names;
}

namespace {

std::string vocabulary_text(const TokenizerParts& parts) {
    std::vector<std::string> spellings;
    for (const std::string& token : parts.tokens) spellings.push_back(spell_bytes(token));
    for (const SpecialToken& token : parts.specials) spellings[token.id] = token.text;
    std::string text = "{";
    for (std::size_t id = 0; id < spellings.size(); ++id)
        text += fmt::format("{}{}: {}", id == 0 ? "" : ", ", nlohmann::json(spellings[id]).dump(), id);
    return text + "}\n";
}

std::string merges_text(const TokenizerParts& parts) {
    std::string text = "#version: 0.2\n";
    for (const Merge& merge : parts.merges)
        text += fmt::format("{} {}\n", spell_bytes(parts.tokens[merge.left]),
                            spell_bytes(parts.tokens[merge.right]));
    return text;
}

/// The pair as tokenizer.json.
std::string json_text(const TokenizerParts& parts) {
    using OrderedJson = nlohmann::ordered_json;
    const OrderedJson bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    OrderedJson added = OrderedJson::array(), merges = OrderedJson::array();
    for (const SpecialToken& token : parts.specials)
        added.push_back({{"id", token.id},
                         {"content", token.text},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
    for (const Merge& merge : parts.merges)
        merges.push_back(spell_bytes(parts.tokens[merge.left]) + " " +
                         spell_bytes(parts.tokens[merge.right]));
    // Written as text, since filling a large ordered object takes quadratic time.
    const std::string vocabulary = vocabulary_text(parts);
    const OrderedJson around = {{"version", "1.0"},        {"truncation", nullptr}, {"padding", nullptr},
                                {"added_tokens", added},   {"normalizer", nullptr}, {"pre_tokenizer", bytes},
                                {"post_processor", bytes}, {"decoder", bytes}};
    std::string text = around.dump();
    text.pop_back();
    return text +
           fmt::format(R"(, "model": {{"type": "BPE", "dropout": null, "unk_token": null, )"
                       R"("continuing_subword_prefix": "", "end_of_word_suffix": "", )"
                       R"("fuse_unk": false, "byte_fallback": false, "vocab": {}, "merges": {}}}}})",
                       vocabulary.substr(0, vocabulary.size() - 1), merges.dump()) +
           "\n";
}

std::map<std::string, std::string> pair_of(const TokenizerParts& parts) {
    return {{"vocab.json", vocabulary_text(parts)}, {"merges.txt", merges_text(parts)}};
}

}  // namespace

std::map<std::string, std::string> tokenizer_texts(const Tokenizer& tokenizer) {
    const TokenizerParts& parts = tokenizer.parts();
    std::map<std::string, std::string> texts = parts.files.empty() ? pair_of(parts) : parts.files;
    if (!texts.contains("vocab.json") || texts.contains("tokenizer.json")) return texts;
    const std::string& json = texts["tokenizer.json"] = json_text(parts);
    for (const TokenizerParts& again :
         {read_vocabulary_and_merges({texts["vocab.json"], parts.source + ", as vocab.json"},
                                     {texts["merges.txt"], "merges.txt"}),
          read_tokenizer_json({json, parts.source + ", as tokenizer.json"})})
        if (!same_tokens(again, parts))
            throw UserError(
                fmt::format("{}: vocab.json and merges.txt cannot hold this tokenizer", parts.source));
    return texts;
}

HfTokenIds token_ids_of(const Tokenizer& tokenizer) {
    HfTokenIds ids{.ends = {tokenizer.ends().begin(), tokenizer.ends().end()}};
    const TokenizerParts& parts = tokenizer.parts();
    std::optional<TokenId> begin = parts.begin;
    if (!begin && !parts.first_tokens.empty()) begin = parts.first_tokens[0];
    // In GPT-2's own configuration, <|endoftext|> begins a text as well.
    for (const char* name : {"<s>", "<|begin_of_text|>", "<|endoftext|>"})
        if (!begin) begin = tokenizer.special(name);
    if (begin) ids.begin = *begin;
    return ids;
}

bool is_kept_in(const fs::path& directory, const Tokenizer& tokenizer) {
    try {
        return same_tokens(load_tokenizer(directory).parts(), tokenizer.parts());
    } catch (const UserError&) {
        // An earlier version wrote an unreadable pair; compare with the pair it would write for this one.
        return std::ranges::all_of(pair_of(tokenizer.parts()), [&](const auto& file) {
            const fs::path path = directory / file.first;
            return fs::exists(path) && read_file(path) == file.second;
        });
    }
}

void write_tokenizer(const Tokenizer& tokenizer, const fs::path& directory) {
    const std::map<std::string, std::string> texts = tokenizer_texts(tokenizer);
    make_folder(directory);
    std::deque<AtomicFile> files;
    for (const auto& [name, text] : texts) files.emplace_back(directory / name).write(text);
    // A crash between two of these leaves files that disagree; loading detects it.
    for (AtomicFile& file : files) file.commit();
}

Tokenizer byte_tokenizer() {
    TokenizerParts parts;
    parts.source = bytes_word;
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    return Tokenizer(std::move(parts));
}

Tokenizer named_tokenizer(const std::string& given) {
    return given == bytes_word ? byte_tokenizer() : load_tokenizer(given);
}

}  // namespace mantissa
