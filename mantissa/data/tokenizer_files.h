// Tokenizers in files: the pairs of GPT-2 and of Hugging Face, tokenizer.json, and tiktoken's rank files.
// Unsupported requests of a file are refused by name, never ignored. Also the tokenizer of a model trained on
// bytes: token i is byte i.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/tokenizer.h"
#include "mantissa/formats/hf_token_ids.h"

namespace mantissa::inline v0 {

/// Loads tokenizer.json, vocab.json + merges.txt, encoder.json + vocab.bpe or tokenizer.tiktoken, in that
/// order, from a directory, or a file *.json or *.tiktoken. generation_config.json and config.json beside it
/// name the tokens that end and begin a text (hf_token_ids.h); without them, spelling decides. Throws
/// UserError, naming file and line, also if both pairs exist and disagree.
Tokenizer load_tokenizer(const std::filesystem::path& path);

/// Whether the directory has files that load_tokenizer reads.
bool holds_tokenizer(const std::filesystem::path& directory);
/// The end of an error: files in a directory of tokenizers that we do not read; may be empty.
std::string unread_tokenizer(const std::filesystem::path& directory);
/// Whether two tokenizers give equal tokens for every text, and equal text for all tokens.
bool same_tokens(const TokenizerParts& a, const TokenizerParts& b);
/// Whether the tokenizer in a checkpoint equals this one; works for unreadable ones, too.
bool is_kept_in(const std::filesystem::path& directory, const Tokenizer& tokenizer);
/// Names of all files that tokenizers are read from, or that are kept with them.
std::vector<std::string> tokenizer_file_names();

/// A text and its name in errors.
struct NamedText {
    std::string_view text;
    std::string name;
};

/// Reads encoder.json (= vocab.json) and vocab.bpe (= merges.txt). Every token must be a byte, the result of
/// a merge, or, in angle brackets, special; ids must be consecutive from 0.
Tokenizer parse_vocabulary_and_merges(const NamedText& vocabulary, const NamedText& merges);

/// Reads tokenizer.json: BPE, byte-level or with byte_fallback as in converted SentencePiece vocabularies, or
/// Unigram. Merges are strings or pairs.
Tokenizer parse_tokenizer_json(const NamedText& json);

/// Reads a line per token: base64 of its bytes, a space, its rank, which is its id. The format has no split
/// rule and no special tokens: GPT-2's rule is used, and <|endoftext|> for the first unused id, as in
/// r50k_base and p50k_base. Vocabularies known to have another rule are refused.
Tokenizer parse_tiktoken(const NamedText& ranks);

/// Files, by name, from which load_tokenizer makes this tokenizer again. These are the original files or,
/// after training here, vocab.json and merges.txt. That pair comes with tokenizer.json, which others need for
/// models that are not GPT-2. New files are verified by reading them back.
std::map<std::string, std::string> tokenizer_texts(const Tokenizer& tokenizer);

/// The ids of this tokenizer for the files beside a model.
HfTokenIds token_ids_of(const Tokenizer& tokenizer);

/// Writes tokenizer_texts into `directory`, which is made if needed. Each file is written whole or not at
/// all. Throws UserError if a file cannot be written.
void write_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& directory);

Tokenizer byte_tokenizer();

inline constexpr const char* bytes_word = "bytes";
/// The byte tokenizer for `bytes_word`, else the tokenizer at a path (tokenizer_files.h).
Tokenizer named_tokenizer(const std::string& given);

}  // namespace mantissa
