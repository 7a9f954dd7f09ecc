// Tokenizers in files: the pairs of GPT-2 and of Hugging Face, tokenizer.json, and tiktoken's rank files.
// What a file asks for and mantissa does not do is refused by name, never left out.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Loads from a directory, in which it looks for encoder.json + vocab.bpe, vocab.json + merges.txt,
/// tokenizer.json, tokenizer.tiktoken, in that order, or from a file named *.json or *.tiktoken. Throws
/// UserError, naming the file and, where there are lines, the line.
Tokenizer load_tokenizer(const std::filesystem::path& path);

/// Whether load_tokenizer finds the files of one in this directory.
bool holds_tokenizer(const std::filesystem::path& directory);
/// Names of all files that load_tokenizer looks for in a directory.
std::vector<std::string> tokenizer_file_names();

/// A text and the name to call it by in messages.
struct NamedText {
    std::string_view text;
    std::string name;
};

/// encoder.json (= vocab.json) and vocab.bpe (= merges.txt). Every token must be a byte, the result of a
/// merge, or, in angle brackets, special; each id below the number of tokens must be used.
Tokenizer parse_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges);

/// tokenizer.json, with merges as strings or as pairs. Of the models only BPE: byte-level, cut as GPT-2 and
/// LLaMA 3 cut, or with byte_fallback, as SentencePiece's vocabularies are converted.
Tokenizer parse_tokenizer_json(const NamedText& json);

/// A line for each token: base64 of its bytes, a space, its rank, which is its id. The format names no split
/// rule and no special tokens: GPT-2's rule is taken, and <|endoftext|> for the first id that no line uses,
/// as in r50k_base and p50k_base. Vocabularies known to be split by another rule are refused.
Tokenizer parse_tiktoken(const NamedText& ranks);

/// The files, by name, that make load_tokenizer give this tokenizer again: vocab.json and merges.txt, or,
/// where these cannot hold it, the file that it was read from. Throws UserError if that cannot be read any
/// more.
std::map<std::string, std::string> tokenizer_texts(const Tokenizer& tokenizer);

/// Writes vocab.json and merges.txt into `directory`, which is made if need be. Each file appears whole
/// or not at all. Throws UserError if a file cannot be written or the tokenizer has no list of merges.
void write_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);

}  // namespace mantissa
