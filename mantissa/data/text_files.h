// The text files that a user named, as every command that reads text takes them, and their tokens as one
// stream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/data/encode_text.h"
#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

struct TextFiles {
    std::vector<std::filesystem::path> taken;  ///< in the order given, those of a folder sorted by name
    std::vector<std::string> names;            ///< of each: its path below the folder that was given
    std::string account;  ///< for people: what was taken of folders, and what was left out; empty: nothing
};

/// Files, of folders all that hold text (files_below). What is empty is left out; of a folder, what is no
/// text, too. Throws UserError if nothing is left, or a folder cannot be read.
TextFiles find_texts(const std::vector<std::filesystem::path>& given);

enum class TextsAre : std::uint8_t {
    joined,    ///< one text, a line break between two
    begun,     ///< each a text that begins with the tokens with which its tokenizer begins one
    documents  ///< each ends a document (encode_documents)
};

/// Texts that are not told apart as documents are joined, but begun where there is what to begin them with.
TextsAre joined_or_begun(const Tokenizer& tokenizer, const TextReading& reading);

/// Bytes of texts, with the line breaks between them.
std::uint64_t bytes_of_texts(const std::vector<TextFile>& texts, TextsAre are);

/// The texts one after another, a line break between two.
std::string joined_texts(const std::vector<TextFile>& texts);

/// Hands the tokens of texts to the sink, in order; returns how many stand before each text. Where texts are
/// joined, a token may be of two: it is counted to the first, as are those to the next place where the text
/// may be cut.
std::vector<std::uint64_t> encode_texts(const Tokenizer& tokenizer, const std::vector<TextFile>& texts,
                                        TextsAre are, const TextReading& reading, ThreadPool& pool,
                                        TokenSink sink);

/// A short name for one or more files: "a.txt", "DIR (13 files)", "41 files of DIR and b.txt".
std::string name_of(const std::vector<std::filesystem::path>& files);

}  // namespace mantissa
