// The text files that a user named, for all commands that read text, and their tokens as one stream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/data/encode_text.h"
#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

struct TextFiles {
    std::vector<std::filesystem::path> taken;  ///< in the given order; inside a folder, by name
    std::vector<std::string> names;            ///< per file: path below the given folder
    std::string account;  ///< for users: files taken from folders, files left out; empty: none
};

/// Files, and all text files of folders (files_below). Empty files are left out; in a folder, files that are
/// not text, too. Throws UserError if nothing is left, or a folder cannot be read.
TextFiles find_texts(const std::vector<std::filesystem::path>& given);

enum class TextsAre : std::uint8_t {
    joined,    ///< one text, with line breaks between
    begun,     ///< each begins with the tokenizer's first tokens
    documents  ///< each ends a document (encode_documents)
};

/// `begun` if the reading adds first or last tokens to texts; else `joined`.
TextsAre joined_or_begun(const Tokenizer& tokenizer, const TextReading& reading);

/// Bytes of texts, with the line breaks between them.
std::uint64_t bytes_of_texts(const std::vector<TextFile>& texts, TextsAre are);

/// The texts one after another, with line breaks between.
std::string joined_texts(const std::vector<TextFile>& texts);

/// Hands the tokens of texts to the sink, in order; returns the number of tokens before each text. If texts
/// are joined, a token may overlap two; it counts to the first, with all tokens up to the next safe cut.
std::vector<std::uint64_t> encode_texts(const Tokenizer& tokenizer, const std::vector<TextFile>& texts,
                                        TextsAre are, const TextReading& reading, ThreadPool& pool,
                                        TokenSink sink);

/// A short name for one or more files: "a.txt", "DIR (13 files)", "41 files of DIR and b.txt".
std::string name_of(const std::vector<std::filesystem::path>& files);

}  // namespace mantissa
