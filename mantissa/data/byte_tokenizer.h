// The tokenizer of a model that was trained on bytes: token i is the byte i. Also finds tokenizers by name,
// this one among them.
#pragma once

#include <string>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Its source is named "bytes".
Tokenizer byte_tokenizer();

inline constexpr const char* bytes_word = "bytes";
/// The byte tokenizer for `bytes_word`, else that of a path (tokenizer_files.h).
Tokenizer named_tokenizer(const std::string& given);

}  // namespace mantissa
