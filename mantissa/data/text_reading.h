// How texts became tokens, as stored in checkpoints and in records of token shards.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// The reading of files from before it was recorded.
inline constexpr TextReading earlier_reading = {.specials = SpecialsInText::as_text, .begins = false};

/// The word for it in files and options: "tokens" or "text".
std::string_view name_of(SpecialsInText specials);
/// Throws UserError for another word.
SpecialsInText specials_in_text(std::string_view name);

nlohmann::ordered_json json_of(const TextReading& reading);
/// The member "reading" of an object, or earlier_reading. Throws UserError, beginning with `source`, for a
/// member that json_of does not write.
TextReading reading_in(const nlohmann::json& object, const std::string& source);

/// Whether the two readings give some text different tokens.
bool differ(const TextReading& a, const TextReading& b, const Tokenizer& tokenizer);

/// A remark on `whole`, "the prompt", if the text spells the tokens that already precede each text; empty: it
/// does not.
std::string begins_twice(std::string_view text, const TextReading& reading, const Tokenizer& tokenizer,
                         const std::string& whole);

/// "special tokens read as tokens, <s> before each text".
std::string text_of(const TextReading& reading, const Tokenizer& tokenizer);

}  // namespace mantissa
