// JSON objects that carry their own checksum, so that no bit of them can change unseen. Include this from
// .cpp files only: it names a JSON library's type.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// The object, not empty and without a member "xxh3", as text whose first line is that member: the checksum
/// of all bytes after the line. The length does not depend on its value.
std::string sealed_json_text(const nlohmann::json& object);

/// Throws UserError that begins with `source` if any bit of the text is not as sealed_json_text wrote it, or
/// it is another format or version.
nlohmann::json parse_sealed_json(std::string_view text, const std::string& source, std::string_view format,
                                 std::uint64_t version);

/// A checksum as checksum_text writes it. Throws UserError that names `source`, `what` and what came instead.
std::uint64_t require_checksum(const nlohmann::json& value, const std::string& source,
                               const std::string& what);

}  // namespace mantissa
