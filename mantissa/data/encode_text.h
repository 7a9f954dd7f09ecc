// Encoding a long text on all threads, its tokens handed on in order and never all held at once.
#pragma once

#include <span>
#include <string_view>

#include "mantissa/base/function_ref.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// The next tokens of the text, and how many of its bytes they and all before them stand for.
using TokenSink = FunctionRef<void(std::span<const TokenId> ids, std::size_t bytes_done)>;

/// Calls `sink` on the calling thread with the tokens of `text`, in order: all calls together give what
/// tokenizer.encode(text) does. Special tokens are plain text.
void encode_text(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink);

}  // namespace mantissa
