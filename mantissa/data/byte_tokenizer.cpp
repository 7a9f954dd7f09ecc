#include "mantissa/data/byte_tokenizer.h"

namespace mantissa::inline v0 {

Tokenizer byte_tokenizer() {
    TokenizerParts parts;
    parts.source = "bytes";
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    return Tokenizer(std::move(parts));
}

}  // namespace mantissa
