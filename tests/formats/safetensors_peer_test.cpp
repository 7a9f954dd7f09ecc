// Our half of bench/peers/check_safetensors.py, which compares with the reference implementation: it has read
// ours.safetensors, and made the other files.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/safetensors_write.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(MANTISSA_SOURCE_DIR) / "tests/fixtures/safetensors";

/// The byte at `i` of every tensor, on both sides.
std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 37 % 251 % 2); }

std::vector<TensorView> pattern_tensors(const std::vector<std::byte>& data) {
    return {{"f64", DType::f64, {3}, data.data()},
            {"f32", DType::f32, {2, 3}, data.data()},
            {"f16", DType::f16, {5, 1}, data.data()},
            {"bf16", DType::bf16, {3}, data.data()},
            {"i64", DType::i64, {2}, data.data()},
            {"i32", DType::i32, {1, 1, 2}, data.data()},
            {"u8", DType::u8, {7}, data.data()},
            {"bool", DType::boolean, {3}, data.data()},
            {"scalar", DType::f32, {}, data.data()},
            {"empty", DType::f32, {4, 0}, data.data()},
            {"a \"name\" \xC3\xA9", DType::u8, {1}, data.data()}};
}

std::vector<std::byte> pattern_bytes() {
    std::vector<std::byte> data(64);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern(i);
    return data;
}

TEST(SafetensorsPeer, WritesTheFileThatTheyRead) {
    const TemporaryDirectory directory;
    const fs::path written = directory / "ours.safetensors";
    const std::vector<std::byte> data = pattern_bytes();
    write_safetensors(written, pattern_tensors(data), {{"format", "pt"}, {"made by", "us"}});
    EXPECT_TRUE(read_file(written) == read_file(folder / "ours.safetensors"))
        << "if that was meant, have bench/peers/check_safetensors.py read the new file";
}

TEST(SafetensorsPeer, ReadsTheirFile) {
    const SafetensorsFile file(folder / "theirs.safetensors");
    const std::vector<std::byte> data = pattern_bytes();
    const std::vector<TensorView> expected = pattern_tensors(data);
    EXPECT_EQ(file.tensors().size(), expected.size());
    EXPECT_EQ(file.metadata().at("made by"), "them");
    for (const TensorView& tensor : expected) {
        const TensorView read = file.view(tensor.name);
        EXPECT_EQ(read.dtype, tensor.dtype) << tensor.name;
        EXPECT_EQ(read.shape, tensor.shape) << tensor.name;
        const std::size_t bytes = byte_count(read.dtype, read.shape);
        EXPECT_TRUE(bytes == 0 || std::memcmp(read.data, tensor.data, bytes) == 0) << tensor.name;
    }
}

/// mutants.bin: for each, u32 length, u8 their verdict (1: accepted), the bytes.
TEST(SafetensorsPeer, AgreesOnTheirVerdicts) {
    const std::string all = read_file(folder / "mutants.bin");
    int accepted = 0, refused = 0;
    for (std::size_t at = 0; at < all.size();) {
        std::uint32_t length;
        std::memcpy(&length, &all[at], 4);
        const bool theirs = all[at + 4] == 1;
        const std::string file = all.substr(at + 5, length);
        at += 5 + length;
        std::string reason = "accepted";
        try {
            parse_safetensors(std::as_bytes(std::span(file)), "mutant");
        } catch (const UserError& error) {
            reason = error.what();
        }
        // The format disallows duplicate keys; the reference's parser keeps the last one and may not notice.
        const bool repeated = reason.find("appears twice") != reason.npos;
        EXPECT_TRUE(repeated || (reason == "accepted") == theirs) << reason << "\n" << file.substr(8);
        (theirs ? accepted : refused)++;
    }
    EXPECT_GT(accepted, 15);
    EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace mantissa
