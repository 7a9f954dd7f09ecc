// The text that a model trains on: where it comes from, as one stream of tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/data/token_stream.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa {

struct CorpusOptions {
    std::vector<std::filesystem::path>
        texts;  ///< text files; empty, with no token files: english_text_files()
    std::vector<std::filesystem::path> tokens;  ///< token shards instead of texts
    std::filesystem::path tokenizer;            ///< empty: the bytes of the text are the tokens
    std::int64_t model_vocabulary = 0;          ///< every token must be below it
};

struct Corpus {
    TokenStream stream;
    std::unique_ptr<Tokenizer> tokenizer;  ///< null: tokens are bytes, or came as shards without one
    std::string description;               ///< for the log: which files, how many tokens of what kind
};

/// Reads, encodes and checks everything. Throws UserError if a file is missing, empty or binary, if both
/// texts and token files are given, or if the tokenizer is larger than the model's vocabulary.
Corpus open_corpus(const CorpusOptions& options, ThreadPool& pool);

/// Real English that every Debian and Ubuntu machine has: the licences in /usr/share/common-licenses, sorted
/// by name. Throws UserError if there are none.
std::vector<std::filesystem::path> english_text_files();

}  // namespace mantissa
