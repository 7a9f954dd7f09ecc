#include "mantissa/formats/sealed_json.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

constexpr std::string_view line_begin = "{\"xxh3\": \"", line_end = "\",\n";
constexpr std::size_t line_size = line_begin.size() + 16 + line_end.size();

std::string first_line(std::string_view rest) {
    return fmt::format("{}{}{}", line_begin, checksum_text(checksum_of(std::as_bytes(std::span(rest)))),
                       line_end);
}

}  // namespace

std::string sealed_json_text(const Json& object) {
    const std::string rest =
        object.dump(1).substr(1) + "\n";  // without the brace, which is on the first line
    return first_line(rest) + rest;
}

Json parse_sealed_json(std::string_view text, const std::string& source, std::string_view format,
                       std::uint64_t version) {
    const std::string_view rest = text.substr(std::min(line_size, text.size()));
    if (text.size() < line_size || text.substr(0, line_size) != first_line(rest))
        throw UserError(source + ": differs from the checksum in its first line");
    Json json = parse_strict_json(text, source);
    if (require_member(json, "format", source, "manifest") != format)
        throw UserError(fmt::format("{}: expected the format \"{}\"", source, format));
    const std::uint64_t found =
        require_unsigned(require_member(json, "version", source, "manifest"), source, "version");
    if (found != version)
        throw UserError(
            fmt::format("{}: {} version {}, this program reads {}", source, format, found, version));
    return json;
}

std::uint64_t require_checksum(const Json& value, const std::string& source, const std::string& what) {
    const std::string& text = require_string(value, source, what);
    std::uint64_t checksum = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
    if (error != std::errc{} || end != text.data() + text.size())
        throw UserError(
            fmt::format("{}: {}: expected a checksum, found {}", source, what, json_excerpt(value)));
    return checksum;
}

}  // namespace mantissa
