// How texts became tokens, in the files that keep it: checkpoints, and the records of token shards.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Files that do not say it were written when nothing else was done.
inline constexpr TextReading earlier_reading = {.specials = SpecialsInText::as_text, .begins = false};

/// The word of a file and of an option: "tokens" or "text".
std::string_view name_of(SpecialsInText specials);
/// Throws UserError for another word.
SpecialsInText specials_in_text(std::string_view name);

nlohmann::ordered_json json_of(const TextReading& reading);
/// The member "reading" of an object, or earlier_reading. Throws UserError, beginning with `source`, for one
/// that json_of does not write.
TextReading reading_in(const nlohmann::json& object, const std::string& source);

/// Whether some text becomes other tokens by one than by the other.
bool differ(const TextReading& a, const TextReading& b, const Tokenizer& tokenizer);

/// Words about `whole`, "the prompt", where the text spells what stands before each text anyway; empty: it
/// does not.
std::string begins_twice(std::string_view text, const TextReading& reading, const Tokenizer& tokenizer,
                         const std::string& whole);

/// "special tokens read as tokens, <s> before each text".
std::string text_of(const TextReading& reading, const Tokenizer& tokenizer);

}  // namespace mantissa
