#include "mantissa/data/byte_tokenizer.h"

#include "mantissa/data/tokenizer_files.h"

namespace mantissa::inline v0 {

Tokenizer byte_tokenizer() {
    TokenizerParts parts;
    parts.source = bytes_word;
    for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
    return Tokenizer(std::move(parts));
}

Tokenizer named_tokenizer(const std::string& given) {
    return given == bytes_word ? byte_tokenizer() : load_tokenizer(given);
}

}  // namespace mantissa
