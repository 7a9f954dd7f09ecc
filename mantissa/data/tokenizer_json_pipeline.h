// The steps around the model in tokenizer.json: changes and cuts of a text, tokens added around its own, and
// decoding. Internal to data/tokenizer*.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

struct TokenizerPipeline {
    TextPipeline text = {};
    FirstSpace first_space = FirstSpace::kept;
    std::vector<TokenId> first_tokens = {}, last_tokens = {};
};

/// Kind of a tokenizer: of bytes, as GPT-2 and LLaMA 3, or of text, as SentencePiece, optionally with bytes
/// as fallback.
enum class TokenizerKind : std::uint8_t { bytes, text, text_and_bytes };

/// Reads normalizer, pre_tokenizer, post_processor and decoder of `root`. Throws UserError, beginning with
/// `source`, that names an entry unsupported for the kind.
TokenizerPipeline read_tokenizer_pipeline(const nlohmann::json& root, TokenizerKind kind,
                                          const std::string& source);

/// The member, or null where it is absent: the format's defaults are all null, false or empty.
const nlohmann::json& member_or_null(const nlohmann::json& object, const char* key);

/// The member as a flag, or `absent` if missing. Throws UserError, naming it `what`, for any other value.
bool read_flag(const nlohmann::json& object, const char* key, bool absent, const std::string& source,
               const std::string& what);

}  // namespace mantissa
