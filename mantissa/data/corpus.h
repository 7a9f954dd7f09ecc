// The text that a model trains on: its sources, as one stream of tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/data/packed_documents.h"
#include "mantissa/data/token_file.h"
#include "mantissa/data/token_stream.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

struct CorpusOptions {
    std::vector<std::filesystem::path> texts =
        {};  ///< text files, and folders of them; empty, with no token files: english_text_files()
    std::vector<std::filesystem::path> tokens = {};  ///< token shards instead of texts
    std::vector<std::filesystem::path> chats = {};   ///< files of chats instead of texts (chat_file.h)
    LossOn loss_on = LossOn::answers;                ///< of chats
    std::int64_t sequence = 0;                       ///< most tokens of a chat
    TokenFormat tokens_format = TokenFormat::detect;
    std::filesystem::path tokenizer = {};  ///< empty: see `untokenized`
    /// Treatment of text without a given tokenizer.
    enum class Untokenized : std::uint8_t {
        bytes,  ///< its bytes are the tokens
        train   ///< trains a tokenizer with trained_vocabulary() tokens on it
    } untokenized = Untokenized::bytes;
    std::int64_t model_vocabulary = 0;  ///< every token must be below it
    TextReading reading = {};           ///< of texts; Corpus::reading
    /// Whether documents are separated: the tokenizer's end-of-text token ends each. A text file ends with
    /// one, and has more where its text says so ("<|endoftext|>").
    bool documents = false;
};

struct Corpus {
    TokenStream stream;
    std::unique_ptr<Tokenizer> tokenizer = {};      ///< null: tokens are bytes, or came as shards without one
    std::string description = {};                   ///< for the log: files, kind and number of tokens
    std::unique_ptr<const DocumentEnds> ends = {};  ///< if documents are separated
    std::unique_ptr<ChatSet> chats = {};            ///< of the stream, if its sources are chats
    std::vector<std::string> names = {};  ///< per file of stream.files(): path below the given folder
    /// How its texts became tokens. Token files have it in their record. Without a record, texts begin as the
    /// tokenizer's if its first tokens are among the first million tokens; the rest is as requested.
    TextReading reading = {};
};

/// Reads, encodes and checks everything; the description names the empty files, which are left out. Throws
/// UserError if a file is missing or binary, if no file holds text, or if both texts and token files are
/// given. Throws it if the tokenizer exceeds the model's vocabulary, or if token files differ from the
/// present text and tokenizer (check_token_origin). With separated documents, throws it if no tokenizer tells
/// their end token, or if no end token occurs.
Corpus open_corpus(const CorpusOptions& options, ThreadPool& pool);

/// Keeps about a tenth of the documents for validation, moved to the end of the stream, chosen by the names
/// of their places (held_out.h): file and number in it. A document of more than a quarter of all tokens is
/// for training. If none is left to validate on, the stream is cut as in split_for_validation.
TokenSplit split_by_name(Corpus& corpus);

/// Keeps the last tenth of each file for validation, moved to the end of the stream. If documents are
/// separated, none is cut, and files with long documents are balanced by others. Only a stream with too few
/// documents for that is cut as in split_for_validation.
TokenSplit split_each_file(Corpus& corpus);

/// Keeps about a tenth of the chats for validation, moved to the end of the stream, chosen by their content,
/// so that equal chats stay together; with `last`, the last tenth. If a tenth is less than one chat, the last
/// is kept. Throws UserError for a single chat.
TokenSplit split_chats(Corpus& corpus, bool last);

/// Sequences of a range of the stream: packed chats or documents if it separates them. `corpus` must outlive
/// them.
std::unique_ptr<BatchSource> text_batches(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                                          const BatchOptions& options);

/// Size of a tokenizer trained on a text of this size: one token for 64 bytes, so that each occurs often
/// enough to be learnt. At least 257, and at most 4,096 or the model's vocabulary.
std::int64_t trained_vocabulary(std::int64_t text_bytes, std::int64_t model_vocabulary);

/// English text of every Debian and Ubuntu machine: the licences in /usr/share/common-licenses, sorted by
/// name. Throws UserError if there are none.
std::vector<std::filesystem::path> english_text_files();

}  // namespace mantissa
