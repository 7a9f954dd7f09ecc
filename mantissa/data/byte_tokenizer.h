// The tokenizer of a model trained on bytes: token i is byte i. Also finds tokenizers by name, this one
// included.
#pragma once

#include <string>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

Tokenizer byte_tokenizer();

inline constexpr const char* bytes_word = "bytes";
/// The byte tokenizer for `bytes_word`, else the tokenizer at a path (tokenizer_files.h).
Tokenizer named_tokenizer(const std::string& given);

}  // namespace mantissa
