// The text that a model trains on: where it comes from, as one stream of tokens.
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
    std::int64_t sequence = 0;                       ///< the most tokens of a chat
    TokenFormat tokens_format = TokenFormat::detect;
    std::filesystem::path tokenizer = {};  ///< empty: see `untokenized`
    /// Treatment of text for which no tokenizer is given.
    enum class Untokenized : std::uint8_t {
        bytes,  ///< its bytes are the tokens
        train   ///< a tokenizer is trained on it, of trained_vocabulary() tokens
    } untokenized = Untokenized::bytes;
    std::int64_t model_vocabulary = 0;  ///< every token must be below it
    TextReading reading = {};           ///< of texts; Corpus::reading
    /// Whether documents are told apart: the tokenizer's end-of-text token ends each. A text file ends with
    /// one, and has more where its text says so ("<|endoftext|>").
    bool documents = false;
};

struct Corpus {
    TokenStream stream;
    std::unique_ptr<Tokenizer> tokenizer = {};  ///< null: tokens are bytes, or came as shards without one
    std::string description = {};               ///< for the log: which files, how many tokens of what kind
    std::unique_ptr<const DocumentEnds> ends = {};  ///< where documents are told apart
    std::unique_ptr<ChatSet> chats = {};            ///< where it is of chats: what the stream has
    std::vector<std::string> names = {};  ///< of each of stream.files(): its path below the folder given
    /// How its texts became tokens. Of token files their record says it; without one, they begin texts as the
    /// tokenizer does where its tokens that begin one are among the first million, and the rest is as asked.
    TextReading reading = {};
};

/// Reads, encodes and checks everything; what is empty is left out, and the description says so. Throws
/// UserError if a file is missing or binary, if none holds text, or if both texts and token files are given.
/// Throws it if the tokenizer is larger than the model's vocabulary, or if token files are not of today's
/// text and tokenizer (check_token_origin). Where documents are told apart, throws it if no tokenizer says
/// which token ends them, or if that token is nowhere.
Corpus open_corpus(const CorpusOptions& options, ThreadPool& pool);

/// Keeps about a tenth of the documents for validation, moved to the end of the stream: those that the name
/// of their place chooses (held_out.h), which is that of their file and their number in it. One of more than
/// a quarter of all tokens is trained on. If none is left to validate on, the stream is cut as
/// split_for_validation does.
TokenSplit split_by_name(Corpus& corpus);

/// Keeps the last tenth of each file for validation, moved to the end of the stream. Where documents are told
/// apart, none is cut, and files whose documents are long make up for one another; only a stream whose
/// documents are too few for that is cut as split_for_validation does.
TokenSplit split_each_file(Corpus& corpus);

/// Keeps about a tenth of the chats for validation, moved to the end of the stream: those that their own
/// words choose, so that equal ones stay on one side; or, with `last`, the last tenth of them. Of chats that
/// are too few for a tenth, the last is kept. Throws UserError if there is but one.
TokenSplit split_chats(Corpus& corpus, bool last);

/// Sequences of a range of the stream: packed chats or documents where it tells them apart. `corpus` must
/// outlive them.
std::unique_ptr<BatchSource> text_batches(const Corpus& corpus, TokenRange range, std::int64_t sequence,
                                          const BatchOptions& options);

/// How many tokens a tokenizer gets that is trained on so much text: one for 64 bytes, so that each occurs
/// often enough to be learnt, at least 257 and at most 4,096 or the model's vocabulary.
std::int64_t trained_vocabulary(std::int64_t text_bytes, std::int64_t model_vocabulary);

/// Real English that every Debian and Ubuntu machine has: the licences in /usr/share/common-licenses, sorted
/// by name. Throws UserError if there are none.
std::vector<std::filesystem::path> english_text_files();

}  // namespace mantissa
