// The sources of token shards, recorded beside them, so that tokens of a text or a tokenizer that has changed
// since are not taken for those of today's. Shards without a record, such as others write, have nothing to be
// held to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// A text as it was when the shards were made.
struct TextOrigin {
    std::filesystem::path path;  ///< empty: it came from no file
    std::uint64_t bytes = 0, checksum = 0;
};

/// Texts, in order, the tokenizer, and how it read them.
struct TokenOrigin {
    std::vector<TextOrigin> texts;
    std::filesystem::path tokenizer;  ///< file or directory
    std::uint64_t vocabulary = 0, vocabulary_checksum = 0;
    TextReading reading = {};
};

TextOrigin text_origin(const std::filesystem::path& file, std::string_view text);
TokenOrigin token_origin(std::vector<TextOrigin> texts, const std::filesystem::path& tokenizer_files,
                         const Tokenizer& tokenizer, const TextReading& reading = {});

/// Checksum of the bytes of every token, in order: equal where equal ids stand for equal text.
std::uint64_t vocabulary_checksum(const Tokenizer& tokenizer);

/// Writes STEM.tokens.json beside the shards STEM_000000.bin..., or beside the one shard STEM.bin: their
/// sizes and checksums and what they were made of. Shards that an earlier record of the stem named and this
/// one does not are of an earlier, longer text: those that are still as that record says are removed.
void write_token_manifest(const std::filesystem::path& stem, const std::vector<std::filesystem::path>& shards,
                          const TokenOrigin& origin);

/// Holds files of tokens to their records, where they have any: each to its checksum; the text, where it is
/// still to be found, to its size and checksum; and `tokenizer` to the one that made them, or, where none is
/// given (null), the one that now lies where that lay. Throws UserError that says what differs and what to
/// do. Returns how the texts were read; none where no file has a record.
std::optional<TextReading> check_token_origin(const std::vector<std::filesystem::path>& files,
                                              const Tokenizer* tokenizer);

/// Only that the tokenizer is the one that made the file.
void check_tokenizer_of(const std::filesystem::path& file, const Tokenizer& tokenizer);

}  // namespace mantissa
