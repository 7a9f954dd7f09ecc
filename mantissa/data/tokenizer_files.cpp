// Which files make up a tokenizer, the pair of vocabulary and merges, and writing that pair.
#include "mantissa/data/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_vocabulary.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

/// Adds the merges of a file with one "LEFT RIGHT" a line, the first of which may be a comment.
void read_merge_lines(const NamedText& merges, SpelledVocabulary& vocabulary) {
    std::string_view rest = merges.text;
    for (std::size_t line = 1; !rest.empty(); ++line) {
        const std::size_t end = rest.find('\n');
        const std::string_view text = rest.substr(0, end);
        rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
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

Tokenizer load_pair(const std::filesystem::path& vocabulary, const std::filesystem::path& merges) {
    const MappedFile vocabulary_file(vocabulary), merges_file(merges);
    return parse_vocabulary_and_merges({vocabulary_file.text(), vocabulary.string()},
                                       {merges_file.text(), merges.string()});
}

Tokenizer load_file(const std::filesystem::path& path) {
    const MappedFile file(path);
    const NamedText text{file.text(), path.string()};
    if (path.extension() == ".tiktoken") return parse_tiktoken(text);
    if (path.extension() == ".json") return parse_tokenizer_json(text);
    throw UserError(fmt::format("{}: expected a tokenizer's directory, tokenizer.json or a .tiktoken file",
                                path.string()));
}

}  // namespace

Tokenizer parse_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges) {
    SpelledVocabulary spelled(vocabulary.name);
    spelled.add_all(parse_strict_json(vocabulary.text, vocabulary.name), "vocabulary");
    read_merge_lines(merges, spelled);
    return Tokenizer(std::move(spelled).finish());
}

namespace {

/// What makes up a tokenizer in a directory, the first that is whole.
constexpr std::array<std::pair<const char*, const char*>, 2> pairs_of_files = {
    {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}}};
constexpr std::array<const char*, 2> single_files = {"tokenizer.json", "tokenizer.tiktoken"};

bool both_there(const std::filesystem::path& directory, const std::pair<const char*, const char*>& pair) {
    return std::filesystem::exists(directory / pair.first) &&
           std::filesystem::exists(directory / pair.second);
}

}  // namespace

Tokenizer load_tokenizer(const std::filesystem::path& path) {
    if (!std::filesystem::is_directory(path)) return load_file(path);
    for (const auto& pair : pairs_of_files)
        if (both_there(path, pair)) return load_pair(path / pair.first, path / pair.second);
    for (const char* name : single_files)
        if (std::filesystem::exists(path / name)) return load_file(path / name);
    throw UserError(
        fmt::format("{}: holds no tokenizer: expected encoder.json and vocab.bpe, or vocab.json and "
                    "merges.txt, or tokenizer.json, or tokenizer.tiktoken",
                    path.string()));
}

bool holds_tokenizer(const std::filesystem::path& directory) {
    return std::ranges::any_of(pairs_of_files,
                               [&](const auto& pair) { return both_there(directory, pair); }) ||
           std::ranges::any_of(single_files,
                               [&](const char* name) { return std::filesystem::exists(directory / name); });
}

std::vector<std::string> tokenizer_file_names() {
    std::vector<std::string> names(single_files.begin(), single_files.end());
    for (const auto& [vocabulary, merges] : pairs_of_files)
        for (const char* name : {vocabulary, merges}) names.emplace_back(name);
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

/// Whether vocab.json and merges.txt say all of it.
bool fits_pair(const TokenizerParts& parts) {
    return !parts.rank_is_id && !parts.whole_pieces && parts.split == Split::gpt2 &&
           parts.prefix_space == PrefixSpace::never && parts.first_tokens.empty();
}

}  // namespace

std::map<std::string, std::string> tokenizer_texts(const Tokenizer& tokenizer) {
    const TokenizerParts& parts = tokenizer.parts();
    if (fits_pair(parts)) return {{"vocab.json", vocabulary_text(parts)}, {"merges.txt", merges_text(parts)}};
    const std::filesystem::path source = parts.source;
    return {{source.extension() == ".tiktoken" ? "tokenizer.tiktoken" : "tokenizer.json", read_file(source)}};
}

void write_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory) {
    const TokenizerParts& parts = tokenizer.parts();
    if (!fits_pair(parts))
        throw UserError(
            fmt::format("{}: vocab.json and merges.txt cannot hold this tokenizer (it was read from "
                        "tokenizer.json or a .tiktoken file with options they lack)",
                        parts.source));
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error)
        throw UserError(
            fmt::format("{}: cannot make the directory: {}", directory.string(), error.message()));
    AtomicFile vocabulary(directory / "vocab.json"), merges(directory / "merges.txt");
    vocabulary.write(vocabulary_text(parts));
    merges.write(merges_text(parts));
    // A crash between these two leaves a pair that disagrees, which loading finds.
    vocabulary.commit();
    merges.commit();
}

}  // namespace mantissa
