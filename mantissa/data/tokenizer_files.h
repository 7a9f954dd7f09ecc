// Tokenizers in files: the pairs of GPT-2 and of Hugging Face, tokenizer.json, and tiktoken's rank files.
// What a file asks for and mantissa does not do is refused by name, never left out. Also the tokenizer of a
// model that was trained on bytes: token i is the byte i.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"
#include "mantissa/formats/hf_token_ids.h"

namespace mantissa::inline v0 {

/// Loads from a directory, in which it looks for tokenizer.json, vocab.json + merges.txt, encoder.json +
/// vocab.bpe, tokenizer.tiktoken, in that order, or from a file named *.json or *.tiktoken. What ends and
/// begins a text, generation_config.json and config.json in the same folder say (hf_token_ids.h), or else its
/// spelling. Throws UserError, naming the file and, where there are lines, the line, and where both pairs are
/// there and disagree.
Tokenizer load_tokenizer(const std::filesystem::path& path);

/// Whether load_tokenizer finds the files of one in this directory.
bool holds_tokenizer(const std::filesystem::path& directory);
/// Files of a directory that hold no tokenizer for us, to end a message with, or nothing.
std::string unread_tokenizer(const std::filesystem::path& directory);
/// Whether two tokenizers give the same tokens for every text, and text for all tokens.
bool same_tokens(const TokenizerParts& a, const TokenizerParts& b);
/// Whether the tokenizer in a checkpoint is this one, even if it cannot be read.
bool is_kept_in(const std::filesystem::path& directory, const Tokenizer& tokenizer);
/// Names of all files that tokenizers are read from or that are kept with them.
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

/// The files, by name, that make load_tokenizer give this tokenizer again: those that it was read from, as
/// they were then, or, of one that was trained here, vocab.json and merges.txt; beside that pair
/// tokenizer.json, which others need where the model is no GPT-2. What was made was read back.
std::map<std::string, std::string> tokenizer_texts(const Tokenizer& tokenizer);

/// The ids that the files beside a model name for this tokenizer.
HfTokenIds token_ids_of(const Tokenizer& tokenizer);

/// Writes tokenizer_texts into `directory`, which is made if need be. Each file appears whole or not at all.
/// Throws UserError if a file cannot be written.
void write_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);

/// Its source is named "bytes".
Tokenizer byte_tokenizer();

inline constexpr const char* bytes_word = "bytes";
/// The byte tokenizer for `bytes_word`, else that of a path (tokenizer_files.h).
Tokenizer named_tokenizer(const std::string& given);

}  // namespace mantissa
