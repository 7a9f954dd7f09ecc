// Any bytes as a manifest, also with the checksum that they need to be looked at: refused with a UserError,
// or a manifest that its own text gives again.
#include "mantissa/train/checkpoint.h"

#include <cstdint>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"

namespace {

void read(const std::string& text) {
    try {
        const mantissa::Manifest manifest = mantissa::parse_manifest(text, "fuzz");
        mantissa::check(mantissa::parse_manifest(mantissa::manifest_text(manifest), "again") == manifest,
                        "a manifest survives a round trip");
    } catch (const mantissa::UserError&) {
        return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string rest(reinterpret_cast<const char*>(data), size);
    read(rest);
    const std::uint64_t checksum = mantissa::checksum_of(std::as_bytes(std::span(rest)));
    read("{\"xxh3\": \"" + mantissa::checksum_text(checksum) + "\",\n" + rest);
    return 0;
}
