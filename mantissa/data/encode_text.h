// Encodes a long text on all threads; hands its tokens on in order, never holding all at once.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Receives the next tokens, and the bytes of the text encoded so far.
using TokenSink = FunctionRef<void(std::span<const TokenId> ids, std::size_t bytes_done)>;

/// Calls `sink` on the calling thread with the tokens of `text`, in order; together they equal
/// tokenizer.encode(text, options). For each of `cuts`, bytes in ascending order, there is a call at the
/// first place from it on where the text may be cut.
void encode_text(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                 const EncodeOptions& options = {}, std::span<const std::size_t> cuts = {});

/// Encodes a text of documents, each as a text by itself. "<|endoftext|>", or the tokenizer's counterpart,
/// ends one, however other special tokens are read; so does the end of the text. Documents of white space
/// alone are left out. Throws UserError if the tokenizer has no such token.
void encode_documents(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink,
                      const TextReading& reading = {});

/// Tokenizer::ends. Throws UserError if there is none.
std::vector<TokenId> ends_of_documents(const Tokenizer& tokenizer);

}  // namespace mantissa
