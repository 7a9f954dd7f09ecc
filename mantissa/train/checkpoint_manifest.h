// The list of a checkpoint's files with their sizes and checksums, itself protected by one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

struct ManifestFile {
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;  ///< of the whole file
    /// For safetensors files: bytes and checksum of the header, checksums of the tensors by name. Together
    /// they cover every byte, so that damage has a name.
    std::uint64_t header_bytes = 0, header_checksum = 0;
    std::map<std::string, std::uint64_t> tensors = {};

    bool is_safetensors() const { return header_bytes > 0; }
    bool operator==(const ManifestFile&) const = default;
};

using Manifest = std::map<std::string, ManifestFile>;

/// The text of manifest.json. Its length does not depend on the checksums' values.
std::string manifest_text(const Manifest& manifest);

/// Throws UserError that begins with `source` if any bit of the text is not as manifest_text wrote it, or the
/// version is not one that this program reads.
Manifest parse_manifest(std::string_view text, const std::string& source);

}  // namespace mantissa
