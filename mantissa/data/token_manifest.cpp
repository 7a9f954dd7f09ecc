#include "mantissa/data/token_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;
using std::filesystem::path;

constexpr std::string_view format_name = "mantissa tokens";
constexpr std::uint64_t format_version = 1;

struct ShardRecord {
    std::uint64_t bytes = 0, checksum = 0;
    bool operator==(const ShardRecord&) const = default;
};

struct TokenManifest {
    path file;  ///< the record's file
    std::map<std::string, ShardRecord> shards;
    TokenOrigin origin;  ///< paths relative to the current directory
};

/// A name that JSON can hold: invalid UTF-8 is replaced.
std::string json_name(const path& name) {
    const std::string quoted = Json(name.string()).dump(-1, ' ', false, Json::error_handler_t::replace);
    return Json::parse(quoted).get<std::string>();
}

/// The stem without a shard's number: "a_000001" gives "a"; "a" gives "a".
std::string without_number(const std::string& stem) {
    const std::size_t mark = stem.rfind('_');
    if (mark == stem.npos || stem.size() - mark - 1 < 6) return stem;
    const bool digits = stem.find_first_not_of("0123456789", mark + 1) == stem.npos;
    return digits ? stem.substr(0, mark) : stem;
}

path manifest_of(path stem) { return stem += ".tokens.json"; }

/// A path relative to the record's folder, so that both can be moved together.
std::string from_folder_of(const path& manifest, const path& file) {
    std::error_code ignored;
    const path folder = std::filesystem::absolute(manifest).parent_path();
    return json_name(std::filesystem::absolute(file, ignored)
                         .lexically_normal()
                         .lexically_proximate(folder.lexically_normal()));
}

TokenManifest read_manifest(const path& file) {
    const std::string name = file.string();
    const Json json = parse_sealed_json(MappedFile(file).text(), name, format_name, format_version);
    TokenManifest manifest{.file = file, .shards = {}, .origin = {}};
    const auto member = [&](const Json& object, const char* key, const char* what) -> const Json& {
        return require_member(object, key, name, what);
    };
    const Json& files = member(json, "files", "record");
    if (!files.is_object()) throw UserError(name + ": files: expected an object");
    for (const auto& [shard, record] : files.items())
        manifest.shards[shard] = {require_unsigned(member(record, "bytes", "files"), name, "bytes"),
                                  require_checksum(member(record, "xxh3", "files"), name, "xxh3")};
    const Json &text = member(json, "text", "record"), &tokenizer = member(json, "tokenizer", "record");
    const auto place = [&](const Json& object) {
        return (file.parent_path() / require_string(object["path"], name, "path")).lexically_normal();
    };
    TokenOrigin& origin = manifest.origin;
    const auto add_text = [&](const Json& one) {
        origin.texts.push_back({one.contains("path") ? place(one) : path(),
                                require_unsigned(member(one, "bytes", "text"), name, "text, bytes"),
                                require_checksum(member(one, "xxh3", "text"), name, "text, xxh3")});
    };
    // One text is an object, several are an array.
    if (text.is_array())
        for (const Json& one : text) add_text(one);
    else
        add_text(text);
    member(tokenizer, "path", "tokenizer");
    origin.tokenizer = place(tokenizer);
    origin.vocabulary = require_unsigned(member(tokenizer, "tokens", "tokenizer"), name, "tokenizer, tokens");
    origin.vocabulary_checksum =
        require_checksum(member(tokenizer, "xxh3", "tokenizer"), name, "tokenizer, xxh3");
    origin.reading = reading_in(json, name);
    return manifest;
}

/// The record beside a file of tokens; none if there is no record.
std::optional<path> manifest_beside(const path& shard) {
    if (shard.extension() != ".bin") return std::nullopt;
    const std::string stem = shard.stem().string();
    for (const std::string& name : {stem, without_number(stem)})
        if (const path file = manifest_of(shard.parent_path() / name); std::filesystem::exists(file))
            return file;
    return std::nullopt;
}

std::string what_to_do(const TokenManifest& manifest) {
    const TokenOrigin& origin = manifest.origin;
    const std::string name = manifest.file.string();
    const path stem = name.substr(0, name.size() - std::string_view(".tokens.json").size());
    const bool one = manifest.shards.contains(json_name(stem.filename().string() + ".bin"));
    std::vector<std::string> texts;
    for (const TextOrigin& text : origin.texts)
        texts.push_back(text.path.empty() ? "-" : shell_word(text.path.string()));
    return fmt::format(
        "write them anew (`encode_text` {} `tokenizer` {} `out` {}), or remove {} to use the "
        "tokens as they are",
        fmt::join(texts, " "), shell_word(origin.tokenizer.string()),
        shell_word(stem.string() + (one ? ".bin" : "")), name);
}

ShardRecord record_of(const path& shard) {
    const MappedFile file(shard);
    return {file.size(), checksum_of(file.bytes())};
}

void check_shard(const path& shard, const TokenManifest& manifest) {
    const auto written = manifest.shards.find(json_name(shard.filename()));
    if (written == manifest.shards.end())
        throw UserError(fmt::format(
            "{}: {} names {}, and not this one, so it is left of other tokens; leave it out, or {}",
            shard.string(), manifest.file.string(), count_text(manifest.shards.size(), "file"),
            what_to_do(manifest)));
    const ShardRecord now = record_of(shard);
    if (now != written->second)
        throw UserError(fmt::format(
            "{}: has {} bytes with checksum {}, where {} says {} with {}: it was damaged or written over; {}",
            shard.string(), now.bytes, checksum_text(now.checksum), manifest.file.string(),
            written->second.bytes, checksum_text(written->second.checksum), what_to_do(manifest)));
}

void check_text(const TextOrigin& origin, const TokenManifest& manifest) {
    std::error_code ignored;
    if (origin.path.empty() || !std::filesystem::is_regular_file(origin.path, ignored)) return;
    const MappedFile text(origin.path);
    const std::uint64_t checksum = checksum_of(text.bytes());
    if (text.size() == origin.bytes && checksum == origin.checksum) return;
    throw UserError(fmt::format(
        "{}: has changed since the tokens that {} names were made of it (then {} bytes with checksum {}, now "
        "{} with {}); {}",
        origin.path.string(), manifest.file.string(), origin.bytes, checksum_text(origin.checksum),
        text.size(), checksum_text(checksum), what_to_do(manifest)));
}

enum class TokenizerIs { given, where_it_was };

void check_tokenizer(const TokenManifest& manifest, const Tokenizer& tokenizer, TokenizerIs which) {
    const TokenOrigin& origin = manifest.origin;
    const std::uint64_t checksum = vocabulary_checksum(tokenizer);
    if (checksum == origin.vocabulary_checksum) return;
    const bool given = which == TokenizerIs::given;
    throw UserError(fmt::format(
        "{}: {} the tokens that {} names were made {} {} tokens, checksum {}; {} {}, checksum {}); {}{}",
        tokenizer.parts().source, given ? "is not the tokenizer with which" : "has changed since",
        manifest.file.string(),
        given ? fmt::format("(that was {},", origin.tokenizer.string()) : "with it (then", origin.vocabulary,
        checksum_text(origin.vocabulary_checksum), given ? "this has" : "now", tokenizer.vocabulary(),
        checksum_text(checksum), given ? "use that one, or " : "", what_to_do(manifest)));
}

/// Null if it no longer exists; the tokens are then not compared with it.
std::unique_ptr<Tokenizer> tokenizer_at(const path& place) {
    try {
        return std::make_unique<Tokenizer>(load_tokenizer(place));
    } catch (const UserError&) {
        return nullptr;
    }
}

void remove_shards_of_earlier_text(const path& manifest, const std::set<std::string>& kept) {
    std::error_code ignored;
    if (!std::filesystem::exists(manifest, ignored)) return;
    try {
        for (const auto& [name, record] : read_manifest(manifest).shards) {
            const path shard = manifest.parent_path() / name;
            if (kept.contains(name) || name.find('/') != name.npos || !std::filesystem::exists(shard))
                continue;
            if (record_of(shard) == record) std::filesystem::remove(shard);
        }
    } catch (const UserError&) {  // a damaged record names nothing and is overwritten
    }
}

}  // namespace

std::uint64_t vocabulary_checksum(const Tokenizer& tokenizer) {
    Checksum checksum;
    for (TokenId id = 0; id < tokenizer.vocabulary(); ++id) {
        const std::string_view bytes = tokenizer.token_bytes(id);
        const std::string text = fmt::format("{} ", bytes.size());
        checksum.add(std::as_bytes(std::span(text)));
        checksum.add(std::as_bytes(std::span(bytes)));
    }
    return checksum.value();
}

TextOrigin text_origin(const path& file, std::string_view text) {
    return {file, text.size(), checksum_of(std::as_bytes(std::span(text)))};
}

TokenOrigin token_origin(std::vector<TextOrigin> texts, const path& tokenizer_files,
                         const Tokenizer& tokenizer, const TextReading& reading) {
    return {.texts = std::move(texts),
            .tokenizer = tokenizer_files,
            .vocabulary = static_cast<std::uint64_t>(tokenizer.vocabulary()),
            .vocabulary_checksum = vocabulary_checksum(tokenizer),
            .reading = reading};
}

void write_token_manifest(const path& stem, const std::vector<path>& shards, const TokenOrigin& origin) {
    const path manifest = manifest_of(stem);
    Json json = {{"format", format_name}, {"version", format_version}, {"files", Json::object()}};
    std::set<std::string> names;
    for (const path& shard : shards) {
        const ShardRecord record = record_of(shard);
        const std::string name = json_name(shard.filename());
        json["files"][name] = {{"bytes", record.bytes}, {"xxh3", checksum_text(record.checksum)}};
        names.insert(name);
    }
    Json texts = Json::array();
    for (const TextOrigin& text : origin.texts) {
        Json& one = texts.emplace_back();
        one = {{"bytes", text.bytes}, {"xxh3", checksum_text(text.checksum)}};
        if (!text.path.empty()) one["path"] = from_folder_of(manifest, text.path);
    }
    json["text"] = texts.size() == 1 ? texts[0] : texts;
    json["tokenizer"] = {{"path", from_folder_of(manifest, origin.tokenizer)},
                         {"tokens", origin.vocabulary},
                         {"xxh3", checksum_text(origin.vocabulary_checksum)}};
    json["reading"] = json_of(origin.reading);
    remove_shards_of_earlier_text(manifest, names);
    write_whole(manifest, sealed_json_text(json));
}

std::optional<TextReading> check_token_origin(const std::vector<path>& files, const Tokenizer* tokenizer) {
    std::map<path, TokenManifest> manifests;
    for (const path& file : files) {
        const auto beside = manifest_beside(file);
        if (!beside) continue;
        if (!manifests.contains(*beside)) manifests[*beside] = read_manifest(*beside);
        check_shard(file, manifests[*beside]);
    }
    for (const auto& [place, manifest] : manifests) {
        for (const TextOrigin& text : manifest.origin.texts) check_text(text, manifest);
        if (tokenizer) {
            check_tokenizer(manifest, *tokenizer, TokenizerIs::given);
        } else if (const auto now = tokenizer_at(manifest.origin.tokenizer)) {
            check_tokenizer(manifest, *now, TokenizerIs::where_it_was);
        }
    }
    if (manifests.empty()) return std::nullopt;
    const TokenManifest& first = manifests.begin()->second;
    for (const auto& [place, manifest] : manifests)
        if (tokenizer && differ(first.origin.reading, manifest.origin.reading, *tokenizer))
            throw UserError(fmt::format(
                "{}: its texts were made tokens in another way ({}) than those of {} ({}); {}",
                manifest.file.string(), text_of(manifest.origin.reading, *tokenizer), first.file.string(),
                text_of(first.origin.reading, *tokenizer), what_to_do(manifest)));
    return first.origin.reading;
}

void check_tokenizer_of(const path& file, const Tokenizer& tokenizer) {
    if (const auto beside = manifest_beside(file))
        check_tokenizer(read_manifest(*beside), tokenizer, TokenizerIs::given);
}

}  // namespace mantissa
