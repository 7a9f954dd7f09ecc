#include "mantissa/train/checkpoint_manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa {

namespace {

using Json = nlohmann::json;

// The text begins with its own checksum, which covers everything after this line.
constexpr std::string_view line_begin = "{\"xxh3\": \"", line_end = "\",\n";
constexpr std::size_t line_size = line_begin.size() + 16 + line_end.size();

constexpr std::string_view format_name = "mantissa checkpoint";
constexpr std::uint64_t format_version = 1;

std::string first_line(std::string_view rest) {
    return fmt::format("{}{}{}", line_begin, checksum_text(checksum_of(std::as_bytes(std::span(rest)))),
                       line_end);
}

std::uint64_t parse_checksum(const Json& value, const std::string& source, const std::string& what) {
    const std::string& text = require_string(value, source, what);
    std::uint64_t checksum = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
    if (error != std::errc{} || end != text.data() + text.size())
        throw UserError(
            fmt::format("{}: {}: expected a checksum, found {}", source, what, json_excerpt(value)));
    return checksum;
}

Json json_of(const ManifestFile& file) {
    Json json = {{"bytes", file.bytes}, {"xxh3", checksum_text(file.checksum)}};
    if (file.is_safetensors()) {
        json["header"] = {{"bytes", file.header_bytes}, {"xxh3", checksum_text(file.header_checksum)}};
        json["tensors"] = Json::object();
        for (const auto& [name, checksum] : file.tensors) json["tensors"][name] = checksum_text(checksum);
    }
    return json;
}

ManifestFile file_of(const Json& json, const std::string& source, const std::string& name) {
    const std::string what = "files, " + name;
    ManifestFile file;
    file.bytes = require_unsigned(require_member(json, "bytes", source, what), source, what + ", bytes");
    file.checksum = parse_checksum(require_member(json, "xxh3", source, what), source, what + ", xxh3");
    if (!json.contains("header")) return file;
    const Json& header = json["header"];
    file.header_bytes =
        require_unsigned(require_member(header, "bytes", source, what), source, what + ", header");
    file.header_checksum =
        parse_checksum(require_member(header, "xxh3", source, what), source, what + ", header");
    const Json& tensors = require_member(json, "tensors", source, what);
    if (!tensors.is_object())
        throw UserError(fmt::format("{}: {}: tensors: expected an object", source, what));
    for (const auto& [tensor, checksum] : tensors.items())
        file.tensors[tensor] = parse_checksum(checksum, source, what + ", " + tensor);
    return file;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
    Json json = {{"format", format_name}, {"version", format_version}, {"files", Json::object()}};
    for (const auto& [name, file] : manifest) json["files"][name] = json_of(file);
    const std::string rest = json.dump(1).substr(1) + "\n";  // without the brace, which the first line has
    return first_line(rest) + rest;
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
    const std::string_view rest = text.substr(std::min(line_size, text.size()));
    if (text.size() < line_size || text.substr(0, line_size) != first_line(rest))
        throw UserError(source + ": differs from the checksum in its first line");
    const Json json = parse_strict_json(text, source);
    if (require_member(json, "format", source, "manifest") != format_name)
        throw UserError(fmt::format("{}: expected the format \"{}\"", source, format_name));
    const std::uint64_t version =
        require_unsigned(require_member(json, "version", source, "manifest"), source, "version");
    if (version != format_version)
        throw UserError(
            fmt::format("{}: checkpoint version {}, this program reads {}", source, version, format_version));
    const Json& files = require_member(json, "files", source, "manifest");
    if (!files.is_object()) throw UserError(source + ": files: expected an object");
    Manifest manifest;
    for (const auto& [name, file] : files.items()) {
        if (name.empty() || name.find('/') != name.npos || name == "." || name == "..")
            throw UserError(fmt::format("{}: \"{}\" is no name of a file", source, name));
        manifest[name] = file_of(file, source, name);
    }
    return manifest;
}

}  // namespace mantissa
