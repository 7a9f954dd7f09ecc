// The list of a checkpoint's files: read as it was written, and refused where a bit of it is another.
#include "mantissa/train/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace mantissa {
namespace {

Manifest some_files() {
    return {{"state.json", {.bytes = 120, .checksum = 0x0123456789abcdef}},
            {"model.safetensors",
             {.bytes = 1 << 20,
              .checksum = 7,
              .header_bytes = 64,
              .header_checksum = 0xffffffffffffffff,
              .tensors = {{"wte.weight", 1}, {"h.0.ln_1.bias", 0x8000000000000000}}}}};
}

std::string manifest_error(const std::string& text) {
    return testing::error_of([&] { parse_manifest(text, "run/manifest.json"); });
}

TEST(CheckpointManifest, IsReadAsItWasWritten) {
    const std::string text = manifest_text(some_files());
    EXPECT_EQ(parse_manifest(text, "manifest.json"), some_files());
    Manifest others = some_files();
    others["state.json"].checksum = 0;
    EXPECT_EQ(manifest_text(others).size(), text.size()) << "its length does not depend on checksums";
}

TEST(CheckpointManifest, AnyOtherBitIsRefused) {
    const std::string text = manifest_text(some_files());
    for (std::size_t at = 0; at < text.size(); ++at)
        for (int bit = 0; bit < 8; ++bit) {
            std::string damaged = text;
            damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
            ASSERT_EQ(manifest_error(damaged).find("run/manifest.json"), 0u)
                << "bit " << bit << " of byte " << at;
        }
    for (std::size_t size = 0; size < text.size(); ++size)
        ASSERT_EQ(manifest_error(text.substr(0, size)).find("run/manifest.json"), 0u) << size << " bytes";
}

TEST(CheckpointManifest, NamesOfFilesStayInTheFolder) {
    for (const char* name : {"../state.json", "a/b", "..", ".", ""})
        EXPECT_EQ(manifest_error(manifest_text({{name, {.bytes = 1}}})),
                  "run/manifest.json: \"" + std::string(name) + "\" is no name of a file");
}

}  // namespace
}  // namespace mantissa
