// The sources of token shards, recorded beside them, so that a changed text or tokenizer is noticed. Shards
// without a record, such as other programs', are not checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// A text at the time when the shards were made.
struct TextOrigin {
    std::filesystem::path path;  ///< empty: it did not come from a file
    std::uint64_t bytes = 0, checksum = 0;
};

/// The texts in order, the tokenizer, and how it read them.
struct TokenOrigin {
    std::vector<TextOrigin> texts;
    std::filesystem::path tokenizer;  ///< file or directory
    std::uint64_t vocabulary = 0, vocabulary_checksum = 0;
    TextReading reading = {};
};

TextOrigin text_origin(const std::filesystem::path& file, std::string_view text);
TokenOrigin token_origin(std::vector<TextOrigin> texts, const std::filesystem::path& tokenizer_files,
                         const Tokenizer& tokenizer, const TextReading& reading = {});

/// Checksum of the bytes of every token, in order: equal if equal ids mean equal text.
std::uint64_t vocabulary_checksum(const Tokenizer& tokenizer);

/// Writes STEM.tokens.json beside the shards STEM_000000.bin..., or beside the one shard STEM.bin: their
/// sizes, checksums and sources. Removes shards that only an earlier record of the stem names, from a longer
/// text, if they still match that record.
void write_token_manifest(const std::filesystem::path& stem, const std::vector<std::filesystem::path>& shards,
                          const TokenOrigin& origin);

/// Compares token files with their records, if any: each with its checksum; the text, if it still exists,
/// with its size and checksum; and `tokenizer` with the recorded one. If it is null, the tokenizer now at the
/// recorded place is compared. Throws UserError that names the difference and a remedy. Returns the reading
/// of the texts; none if no file has a record.
std::optional<TextReading> check_token_origin(const std::vector<std::filesystem::path>& files,
                                              const Tokenizer* tokenizer);

/// Compares only the tokenizer with the file's record.
void check_tokenizer_of(const std::filesystem::path& file, const Tokenizer& tokenizer);

}  // namespace mantissa
