// JSON for file formats: no duplicate keys, no silently rounded integers, bounded depth and size, and errors
// that name the file. Also objects with their own checksum, so that every changed bit is noticed. Include
// this from .cpp files only: it uses a JSON library's type.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// Limits of a document; beyond them it is refused.
struct JsonLimits {
    std::size_t bytes = 100'000'000;
    std::size_t depth = 128;  ///< most open objects and arrays
    /// Accepts integers outside 64 bits, rounded: Python writes 10^30 for "no limit".
    bool rounds_integers = false;
};

/// Parses `text`, one whole JSON document (RFC 8259). Throws UserError that begins with `source`, normally
/// the file's path, for a syntax error, a repeated key, or a document beyond `limits`. Also throws it for
/// input that the JSON library would take silently: an integer outside 64 bits (rounded), a NUL byte or a
/// byte order mark (skipped).
nlohmann::json parse_strict_json(std::string_view text, const std::string& source,
                                 const JsonLimits& limits = {});

/// The value as an unsigned integer. Throws UserError, naming `source`, the subject and the value found, for
/// any other value, `16.0`, `1e3` and `-1` included.
std::uint64_t require_unsigned(const nlohmann::json& value, const std::string& source, std::string_view what);

/// The value as a string; errors likewise.
const std::string& require_string(const nlohmann::json& value, const std::string& source,
                                  std::string_view what);

/// The member `key` of `object`. Throws UserError if `object` is not a JSON object or has no such member.
const nlohmann::json& require_member(const nlohmann::json& object, std::string_view key,
                                     const std::string& source, std::string_view what);

/// `value` as JSON text for an error message, cut after about 60 characters, invalid UTF-8 replaced.
std::string json_excerpt(const nlohmann::json& value);

/// The object, not empty and without a member "xxh3", as text. The first line is that member: the checksum of
/// all bytes after the line. The length does not depend on its value.
std::string sealed_json_text(const nlohmann::json& object);

/// Throws UserError that begins with `source` if any bit of the text was changed since sealed_json_text, or
/// format or version differ.
nlohmann::json parse_sealed_json(std::string_view text, const std::string& source, std::string_view format,
                                 std::uint64_t version);

/// Parses a checksum of checksum_text. Throws UserError that names `source`, the subject and the value found.
std::uint64_t require_checksum(const nlohmann::json& value, const std::string& source,
                               const std::string& what);

}  // namespace mantissa
