// JSON objects with their own checksum, so that every changed bit is noticed. Include this from .cpp files
// only: it uses a JSON library's type.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

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
