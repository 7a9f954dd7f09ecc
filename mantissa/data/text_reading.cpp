#include "mantissa/data/text_reading.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

std::string_view name_of(SpecialsInText specials) {
    return specials == SpecialsInText::as_tokens ? "tokens" : "text";
}

SpecialsInText specials_in_text(std::string_view name) {
    for (const SpecialsInText specials : {SpecialsInText::as_tokens, SpecialsInText::as_text})
        if (name_of(specials) == name) return specials;
    throw UserError(fmt::format("special tokens are read as tokens or as text, not as '{}'", name));
}

nlohmann::ordered_json json_of(const TextReading& reading) {
    return {{"special_tokens", name_of(reading.specials)}, {"first_tokens", reading.begins}};
}

TextReading reading_in(const nlohmann::json& object, const std::string& source) {
    if (!object.is_object() || !object.contains("reading")) return earlier_reading;
    const nlohmann::json& reading = object["reading"];
    const nlohmann::json& begins = require_member(reading, "first_tokens", source, "reading");
    const std::string& word = require_string(require_member(reading, "special_tokens", source, "reading"),
                                             source, "reading.special_tokens");
    if (!begins.is_boolean())
        throw UserError(fmt::format("{}: reading.first_tokens: expected true or false, found {}", source,
                                    json_excerpt(begins)));
    try {
        return {.specials = specials_in_text(word), .begins = begins.get<bool>()};
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}: reading.special_tokens: {}", source, error.what()));
    }
}

bool differ(const TextReading& a, const TextReading& b, const Tokenizer& tokenizer) {
    return (a.specials != b.specials && !tokenizer.parts().specials.empty()) ||
           (a.begins != b.begins &&
            !(tokenizer.parts().first_tokens.empty() && tokenizer.parts().last_tokens.empty()));
}

namespace {

std::string text_of_first(const Tokenizer& tokenizer) {
    std::string first;
    for (const TokenId id : tokenizer.parts().first_tokens) first += tokenizer.token_bytes(id);
    return first;
}

}  // namespace

std::string begins_twice(std::string_view text, const TextReading& reading, const Tokenizer& tokenizer,
                         const std::string& whole) {
    const std::string first = text_of_first(tokenizer);
    if (tokenizer.first_tokens(reading).empty() || reading.specials != SpecialsInText::as_tokens ||
        !text.starts_with(first))
        return "";
    return fmt::format("{} begins with {}, which the tokenizer puts there anyway: it stands there twice",
                       whole, first);
}

std::string text_of(const TextReading& reading, const Tokenizer& tokenizer) {
    std::string text = fmt::format("special tokens in texts read as {}", name_of(reading.specials));
    if (tokenizer.parts().first_tokens.empty()) return text;
    const std::string first = text_of_first(tokenizer);
    return fmt::format("{}, {} before each", text, reading.begins ? first : "no " + first);
}

}  // namespace mantissa
