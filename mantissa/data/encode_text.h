// Encoding a long text on all threads, its tokens handed on in order and never all held at once.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// The next tokens of the text, and how many of its bytes they and all before them stand for.
using TokenSink = FunctionRef<void(std::span<const TokenId> ids, std::size_t bytes_done)>;

/// Calls `sink` on the calling thread with the tokens of `text`, in order: all calls together give what
/// tokenizer.encode(text, options) does. The sink is called where the text may be cut at one of `cuts`, bytes
/// in ascending order, or next behind it.
void encode_text(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                 const EncodeOptions& options = {}, std::span<const std::size_t> cuts = {});

/// The same of a text of documents: "<|endoftext|>", or what the tokenizer has in its place, ends one however
/// other special tokens are read, and so does the end of the text. Each document is encoded as a text by
/// itself. Those of white space alone are left out. Throws UserError if the tokenizer has no such token.
void encode_documents(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                      const TextReading& reading = {});

/// Tokenizer::ends. Throws UserError if there is none.
std::vector<TokenId> ends_of_documents(const Tokenizer& tokenizer);

}  // namespace mantissa
