// The steps around the model in tokenizer.json: how a text is changed before it is cut, how it is cut, what
// is put before its tokens and how tokens become text again. Internal to data/tokenizer*.
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

/// Kind of a tokenizer: of bytes, as GPT-2's or LLaMA 3's, or of text, as SentencePiece's, which may fall
/// back to bytes.
enum class TokenizerKind : std::uint8_t { bytes, text, text_and_bytes };

/// Reads normalizer, pre_tokenizer, post_processor and decoder of `root`. Throws UserError, beginning with
/// `source`, that names what is none of that kind's.
TokenizerPipeline read_tokenizer_pipeline(const nlohmann::json& root, TokenizerKind kind,
                                          const std::string& source);

/// The member, or null where it is absent: the format's defaults are all null, false or empty.
const nlohmann::json& member_or_null(const nlohmann::json& object, const char* key);

/// The member as a flag, `absent` where it is absent. Throws UserError, calling it `what`, for anything else.
bool read_flag(const nlohmann::json& object, const char* key, bool absent, const std::string& source,
               const std::string& what);

}  // namespace mantissa
