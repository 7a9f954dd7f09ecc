#include "mantissa/train/checkpoint_manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/formats/sealed_json.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::string_view format_name = "mantissa checkpoint";
constexpr std::uint64_t format_version = 1;

nlohmann::json json_of(const ManifestFile& file) {
    nlohmann::json json = {{"bytes", file.bytes}, {"xxh3", checksum_text(file.checksum)}};
    if (file.is_safetensors()) {
        json["header"] = {{"bytes", file.header_bytes}, {"xxh3", checksum_text(file.header_checksum)}};
        json["tensors"] = nlohmann::json::object();
        for (const auto& [name, checksum] : file.tensors) json["tensors"][name] = checksum_text(checksum);
    }
    return json;
}

ManifestFile file_of(const nlohmann::json& json, const std::string& source, const std::string& name) {
    const std::string what = "files, " + name;
    ManifestFile file;
    file.bytes = require_unsigned(require_member(json, "bytes", source, what), source, what + ", bytes");
    file.checksum = require_checksum(require_member(json, "xxh3", source, what), source, what + ", xxh3");
    if (!json.contains("header")) return file;
    const nlohmann::json& header = json["header"];
    file.header_bytes =
        require_unsigned(require_member(header, "bytes", source, what), source, what + ", header");
    file.header_checksum =
        require_checksum(require_member(header, "xxh3", source, what), source, what + ", header");
    const nlohmann::json& tensors = require_member(json, "tensors", source, what);
    if (!tensors.is_object())
        throw UserError(fmt::format("{}: {}: tensors: expected an object", source, what));
    for (const auto& [tensor, checksum] : tensors.items())
        file.tensors[tensor] = require_checksum(checksum, source, what + ", " + tensor);
    return file;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
    nlohmann::json json = {
        {"format", format_name}, {"version", format_version}, {"files", nlohmann::json::object()}};
    for (const auto& [name, file] : manifest) json["files"][name] = json_of(file);
    return sealed_json_text(json);
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
    const nlohmann::json json = parse_sealed_json(text, source, format_name, format_version);
    const nlohmann::json& files = require_member(json, "files", source, "manifest");
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
