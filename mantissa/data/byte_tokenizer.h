// The tokenizer of a model that was trained on bytes: token i is the byte i.
#pragma once

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Its source is named "bytes".
Tokenizer byte_tokenizer();

}  // namespace mantissa
