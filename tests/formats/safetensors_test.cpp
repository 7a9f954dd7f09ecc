// The reference implementation's accept and reject tables (docs/formats.md), vector by vector, and the round
// trip.
#include "mantissa/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/formats/safetensors_write.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

std::string little_endian(std::uint64_t value) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return bytes;
}

/// A file with this header and `data` bytes of data.
std::string file_of(const std::string& header, std::size_t data = 0) {
    std::string file = little_endian(header.size()) + header;
    for (std::size_t i = 0; i < data; ++i) file.push_back(static_cast<char>(i));
    return file;
}

/// "accepted", or the reason of the refusal without the file's name, which must be there.
std::string verdict(const std::string& file) {
    // A copy of exact size, so that AddressSanitizer sees a read beyond it.
    const std::vector<char> exact(file.begin(), file.end());
    try {
        parse_safetensors(std::as_bytes(std::span(exact)), "m.safetensors");
    } catch (const UserError& error) {
        const std::string message = error.what();
        EXPECT_EQ(message.rfind("m.safetensors: ", 0), 0u) << message;
        return message.substr(message.find(": ") + 2);
    }
    return "accepted";
}

std::string verdict_of_header(const std::string& header, std::size_t data = 0) {
    return verdict(file_of(header, data));
}

TEST(SafetensorsReject, FileAndHeaderLength) {
    EXPECT_EQ(verdict(""), "not a safetensors file: 0 bytes, shorter than the 8 of its header length");
    for (const auto& [bytes, kind] :
         {std::pair{"PK\x03\x04\x14\x03\x08\x08rest", "PyTorch's pickle, or another archive"},
          {"\x80\x02\x8a\x0al\xfc\x9c\x46rest", "PyTorch's old pickle"},
          {"GGUF\x03\x01\x01\x01rest", "GGUF"}})
        EXPECT_EQ(verdict(bytes), std::string("not a safetensors file but ") + kind +
                                      "; write its tensors by safetensors.torch.save_file(state_dict, "
                                      "\"NAME.safetensors\")");
    EXPECT_EQ(verdict("1234567"), "not a safetensors file: 7 bytes, shorter than the 8 of its header length");
    EXPECT_EQ(verdict(std::string("\x3C\0\0\0\0\xFF\xFF\xFF", 8)),
              "not a safetensors file: header length 18446742974197923900, the limit is 100000000");
    EXPECT_EQ(verdict(little_endian(100'000'001)),
              "not a safetensors file: header length 100000001, the limit is 100000000");
    EXPECT_EQ(verdict(little_endian(100'000'000)),
              "header cut short: its length is 100000000 bytes, the file has 0 after the length");
    EXPECT_EQ(verdict(little_endian(0x3C)),
              "header cut short: its length is 60 bytes, the file has 0 after the length");
    EXPECT_EQ(verdict(little_endian(UINT64_MAX)),
              "not a safetensors file: header length 18446744073709551615, the limit is 100000000");
}

TEST(SafetensorsReject, HeaderText) {
    const auto starts = [](const std::string& header, const std::string& reason) {
        EXPECT_EQ(verdict_of_header(header).rfind(reason, 0), 0u)
            << header << ": " << verdict_of_header(header);
    };
    starts("\xFF", "header: not valid JSON at byte 1: ");
    starts("{\"\xFF\":1}", "header: not valid JSON at byte 3: ");
    starts("{", "header: not valid JSON at byte 2: ");
    starts("", "header: not valid JSON at byte 1: ");
    starts("{}x", "header: not valid JSON at byte 3: ");
    starts("{}{}", "header: not valid JSON at byte 3: ");
    starts("[]", "header: expected a JSON object, found an array");
    starts("7", "header: expected a JSON object, found 7");
    starts("\xEF\xBB\xBF{}", "header: begins with a byte order mark");
    starts(std::string("{}\0", 3), "header: not valid JSON at byte 2: a NUL byte");
    starts(R"({"__metadata__":{"a":1}})", R"(__metadata__, "a": expected a string, found 1)");
    starts(R"({"__metadata__":["a"]})", "__metadata__: expected an object of strings, found an array");
}

TEST(SafetensorsReject, EntryOfWrongTypes) {
    const auto with = [](const std::string& entry) { return verdict_of_header("{\"w\":" + entry + "}", 4); };
    EXPECT_EQ(with("[]"), R"(tensor "w": expected an object, found an array)");
    EXPECT_EQ(with(R"({"shape":[1],"data_offsets":[0,4]})"), R"(tensor "w": "dtype" is missing)");
    EXPECT_EQ(with(R"({"dtype":"F32","data_offsets":[0,4]})"), R"(tensor "w": "shape" is missing)");
    EXPECT_EQ(with(R"({"dtype":"F32","shape":[1]})"), R"(tensor "w": "data_offsets" is missing)");
    EXPECT_EQ(with(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"),
              R"(tensor "w", dtype: expected a string, found 7)");
    EXPECT_EQ(with(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"),
              R"(tensor "w": unknown dtype "F31")");
    EXPECT_EQ(with(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})"),
              R"(tensor "w": unknown dtype "f32")");
    EXPECT_EQ(with(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"),
              R"(tensor "w", shape: expected an array, found 1)");
    for (const auto& [size, found] :
         {std::pair{"1.0", "1.0"}, {"1e0", "1.0"}, {"-1", "-1"}, {"\"1\"", "\"1\""}})
        EXPECT_EQ(with(std::string(R"({"dtype":"F32","shape":[)") + size + R"(],"data_offsets":[0,4]})"),
                  std::string(R"(tensor "w", shape: expected an unsigned integer, found )") + found);
    EXPECT_EQ(with(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})"),
              "header: the integer 18446744073709551616 does not fit in 64 bits");
    for (const char* offsets : {"[0]", "[0,4,4]", "{}", "4"})
        EXPECT_EQ(with(std::string(R"({"dtype":"F32","shape":[1],"data_offsets":)") + offsets + "}"),
                  R"(tensor "w", data_offsets: expected two unsigned integers)");
    EXPECT_EQ(with(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4.0]})"),
              R"(tensor "w", data_offsets: expected an unsigned integer, found 4.0)");
}

TEST(SafetensorsReject, DuplicateKeys) {
    const std::string empty = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
    EXPECT_EQ(verdict_of_header("{\"w\":" + empty + ",\"w\":" + empty + "}"),
              R"(header: the key "w" appears twice in one object)");
    EXPECT_EQ(verdict_of_header(R"({"w":{"dtype":"F32","dtype":"I32","shape":[0],"data_offsets":[0,0]}})"),
              R"(header: the key "dtype" appears twice in one object)");
    EXPECT_EQ(verdict_of_header(R"({"__metadata__":{},"__metadata__":{}})"),
              R"(header: the key "__metadata__" appears twice in one object)");
}

std::string two_tensors(const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
}

TEST(SafetensorsReject, HolesAndOverlaps) {
    EXPECT_EQ(verdict_of_header(two_tensors("[0,4]", "[5,9]"), 9),
              R"(tensor "b": data_offsets [5, 9], expected to begin at 4 (no hole, no overlap))");
    EXPECT_EQ(verdict_of_header(two_tensors("[0,4]", "[3,7]"), 7),
              R"(tensor "b": data_offsets [3, 7], expected to begin at 4 (no hole, no overlap))");
    EXPECT_EQ(verdict_of_header(two_tensors("[1,5]", "[5,9]"), 9),
              R"(tensor "a": data_offsets [1, 5], expected to begin at 0 (no hole, no overlap))");
    EXPECT_EQ(verdict_of_header(two_tensors("[0,4]", "[4,0]"), 8),
              R"(tensor "b": data_offsets [4, 0], expected to begin at 4 (no hole, no overlap))");
    // Many tensors that claim the same bytes: an attempt to make a small file cost much memory.
    std::string header = "{";
    for (int i = 0; i < 100'000; ++i)
        header +=
            (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
    EXPECT_EQ(verdict_of_header(header + "}", 4),
              R"(tensor "1": data_offsets [0, 4], expected to begin at 4 (no hole, no overlap))");
}

TEST(SafetensorsReject, ShapesThatDoNotFit) {
    const auto with = [](const std::string& dtype, const std::string& shape, const std::string& offsets,
                         std::size_t data) {
        return verdict_of_header(
            R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
            data);
    };
    EXPECT_EQ(with("I32", "[2,18446744073709551614]", "[0,16]", 16),
              R"(tensor "w": shape [2, 18446744073709551614] of I32 has more bits than 64 bits can count)");
    EXPECT_EQ(with("I32", "[2,9223372036854775807]", "[0,16]", 16),
              R"(tensor "w": shape [2, 9223372036854775807] of I32 has more bits than 64 bits can count)");
    // The product wraps round to exactly 0 elements, or to 0 bits.
    EXPECT_EQ(with("I32", "[4294967296,4294967296]", "[0,0]", 0),
              R"(tensor "w": shape [4294967296, 4294967296] of I32 has more bits than 64 bits can count)");
    EXPECT_EQ(with("F32", "[576460752303423488]", "[0,0]", 0),
              R"(tensor "w": shape [576460752303423488] of F32 has more bits than 64 bits can count)");
    EXPECT_EQ(with("F32", "[9223372036854775808,2,0]", "[0,0]", 0),
              R"(tensor "w": shape [9223372036854775808, 2, 0] of F32 has more bits than 64 bits can count)");
    EXPECT_EQ(with("F4", "[3]", "[0,1]", 1), R"(tensor "w": shape [3] of F4 ends within a byte)");
    EXPECT_EQ(with("F6_E2M3", "[2]", "[0,1]", 1), R"(tensor "w": shape [2] of F6_E2M3 ends within a byte)");
    EXPECT_EQ(with("I32", "[2,2]", "[0,4]", 4),
              R"(tensor "w": data_offsets [0, 4] hold 4 bytes, shape [2, 2] of I32 needs 16)");
    EXPECT_EQ(with("I32", "[]", "[0,0]", 0),
              R"(tensor "w": data_offsets [0, 0] hold 0 bytes, shape [] of I32 needs 4)");
}

TEST(SafetensorsReject, MissingAndExtraBytes) {
    const std::string header = R"({"w":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
    EXPECT_EQ(verdict_of_header(header, 16), "accepted");
    EXPECT_EQ(verdict_of_header(header, 14),
              R"(tensor "w": data cut short: ends at byte 16, the file has 14 bytes of data)");
    EXPECT_EQ(verdict_of_header(header, 17), R"(1 byte after the last tensor "w")");
    EXPECT_EQ(verdict_of_header("{}", 3), "3 bytes after the last tensor");
}

TEST(SafetensorsAccept, WhatTheReferenceAccepts) {
    EXPECT_EQ(verdict_of_header("{}"), "accepted");
    EXPECT_EQ(verdict_of_header("{}      "), "accepted");
    EXPECT_EQ(verdict_of_header("{}\n\t\r "), "accepted");
    EXPECT_EQ(verdict_of_header("  {}"), "accepted");  // the reference's own test, against its README
    EXPECT_EQ(verdict_of_header(R"({"__metadata__":{"format":"pt","":""}})"), "accepted");
    EXPECT_EQ(verdict_of_header(R"({"__metadata__":null})"), "accepted");  // as the reference does
    EXPECT_EQ(verdict_of_header(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "accepted");
    EXPECT_EQ(verdict_of_header(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})"), "accepted");
    EXPECT_EQ(
        verdict_of_header(R"({"w":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}})"),
        "accepted");
    EXPECT_EQ(verdict_of_header(
                  R"({"":{"dtype":"F4","shape":[2],"data_offsets":[0,1],"extra":[null,{"x":1.5}]}})", 1),
              "accepted");
    // Listed out of order, with empty tensors between and at the same place.
    EXPECT_EQ(verdict_of_header(R"({"c":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)"
                                R"("b":{"dtype":"F64","shape":[0],"data_offsets":[4,4]},)"
                                R"("z":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},)"
                                R"("a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
                                8),
              "accepted");
    for (const char* dtype :
         {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
        EXPECT_EQ(
            verdict_of_header(
                std::string(R"({"w":{"dtype":")") + dtype + R"(","shape":[3],"data_offsets":[0,3]}})", 3),
            "accepted")
            << dtype;
    for (const char* dtype : {"C64", "F64", "I64", "U64"})
        EXPECT_EQ(
            verdict_of_header(
                std::string(R"({"w":{"dtype":")") + dtype + R"(","shape":[1],"data_offsets":[0,8]}})", 8),
            "accepted")
            << dtype;
}

TEST(SafetensorsReader, ReadsUnalignedData) {
    // A header of 57 bytes: the floats begin at byte 65 of the file.
    std::string header = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
    header.resize(57, ' ');
    const float values[3] = {1.5f, -2.25f, 1e-30f};
    std::string file = file_of(header);
    file.append(reinterpret_cast<const char*>(values), sizeof values);
    const TemporaryDirectory directory;
    std::ofstream(directory / "m.safetensors", std::ios::binary) << file;
    const SafetensorsFile read(directory / "m.safetensors");
    const TensorView view = read.view("w");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 4, 1u);
    EXPECT_EQ(view.dtype, DType::f32);
    EXPECT_EQ(view.shape, std::vector<std::int64_t>{3});
    EXPECT_EQ(std::memcmp(view.data, values, sizeof values), 0);
    EXPECT_EQ(read.find("x"), nullptr);
    EXPECT_THROW(read.view("x"), UserError);
}

TEST(SafetensorsReader, TypesWithoutCounterpartAreNamed) {
    const TemporaryDirectory directory;
    const std::string path = (directory / "m.safetensors").string();
    std::ofstream(path, std::ios::binary)
        << file_of(R"({"w":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]}})", 3);
    const SafetensorsFile read(path);
    EXPECT_EQ(read.tensors()[0].data.size(), 3u);
    try {
        read.views();
        FAIL() << "a view of F8_E4M3";
    } catch (const UserError& error) {
        EXPECT_EQ(error.what(),
                  path +
                      ": tensor \"w\": dtype F8_E4M3 has no counterpart here; convert the file to F32, "
                      "F16 or BF16");
    }
}

/// Any change of any byte of a file must be refused or give tensors that lie within it; under
/// AddressSanitizer this reads every byte it is given.
TEST(SafetensorsReader, SurvivesMutations) {
    const std::string good = file_of(
        R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[0,7],"data_offsets":[24,24]},"c":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
        26);
    ASSERT_EQ(verdict(good), "accepted");
    const RandomStream random{.seed = 4};
    int accepted = 0, refused = 0;
    for (std::uint64_t trial = 0; trial < 20'000; ++trial) {
        std::string file = good;
        const auto words = random.block(trial);
        for (std::uint32_t change = 0; change <= words[0] % 3; ++change) {
            const std::size_t at = words[1 + change] % file.size();
            const std::uint32_t kind = words[1 + change] >> 20;
            if (kind % 4 == 0)
                file.erase(at, 1 + kind / 4 % 8);
            else if (kind % 4 == 1)
                file.insert(at, 1, "0123456789[]{},:\"-.e\\ \n\xC3"[kind / 4 % 24]);
            else
                file[at] = static_cast<char>(kind);
            if (file.empty()) break;
        }
        const std::vector<char> exact(file.begin(), file.end());
        try {
            const SafetensorsContents contents = parse_safetensors(std::as_bytes(std::span(exact)), "m");
            ++accepted;
            unsigned sum = 0;
            for (const SafetensorsEntry& entry : contents.tensors)
                for (const std::byte b : entry.data) sum += static_cast<unsigned>(b);
            EXPECT_LE(sum, 255u * 26u);
        } catch (const UserError&) {
            ++refused;
        }
    }
    // Changes within names, metadata and data are legal; most others are not.
    EXPECT_GT(accepted, 200);
    EXPECT_GT(refused, 10'000);
}

std::string text_of(const std::filesystem::path& path) { return read_file(path); }

TEST(SafetensorsWriter, RoundTripsEveryType) {
    const TemporaryDirectory directory;
    const auto path = directory / "m.safetensors";
    std::vector<std::byte> data(64);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37);
    const std::vector<TensorView> tensors = {
        {"u", DType::u8, {5}, data.data()},         {"t", DType::boolean, {}, data.data()},
        {"h", DType::f16, {3}, data.data() + 1},    {"b", DType::bf16, {1, 3}, data.data()},
        {"f", DType::f32, {2, 2}, data.data() + 3}, {"d", DType::f64, {1}, data.data()},
        {"i", DType::i32, {2}, data.data()},        {"l", DType::i64, {2, 1}, data.data()},
        {"none", DType::f32, {3, 0, 2}, nullptr},   {"na\"me\xC3\xA9\n", DType::f32, {1}, data.data()}};
    write_safetensors(path, tensors, {{"format", "pt"}});
    const SafetensorsFile file(path);
    EXPECT_EQ(file.tensors().size(), tensors.size());
    EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
    EXPECT_EQ(file.header_size() % 8, 0u);
    for (const TensorView& tensor : tensors) {
        const TensorView read = file.view(tensor.name);
        EXPECT_EQ(read.dtype, tensor.dtype) << tensor.name;
        EXPECT_EQ(read.shape, tensor.shape) << tensor.name;
        const std::size_t bytes = byte_count(tensor.dtype, tensor.shape);
        EXPECT_TRUE(bytes == 0 || std::memcmp(read.data, tensor.data, bytes) == 0) << tensor.name;
        EXPECT_EQ(file.find(tensor.name)->begin % size_of(tensor.dtype), 0u) << tensor.name;
    }
}

TEST(SafetensorsWriter, WritesTheReferenceLayout) {
    const TemporaryDirectory directory;
    const std::vector<std::byte> zeros(16);
    const std::vector<TensorView> tensors = {{"b", DType::bf16, {1}, zeros.data()},
                                             {"z", DType::f32, {1}, zeros.data()},
                                             {"a", DType::f32, {1, 1}, zeros.data()}};
    write_safetensors(directory / "m", tensors);
    std::string header = R"({"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                         R"("z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                         R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
    header.resize(align_up(header.size(), 8), ' ');
    EXPECT_EQ(text_of(directory / "m"), little_endian(header.size()) + header + std::string(10, '\0'));
    write_safetensors(directory / "none", std::span<const TensorView>());
    EXPECT_EQ(text_of(directory / "none"), little_endian(8) + "{}      ");
}

TEST(SafetensorsWriter, Transposes) {
    const TemporaryDirectory directory;
    // More than one gathered piece: 2 MB of 2-byte elements, sizes that are no multiple of a block.
    constexpr std::int64_t rows = 1031, columns = 1021;
    std::vector<std::uint16_t> values(rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 40503u >> 3);
    const TensorView view{
        "w", DType::bf16, {rows, columns}, reinterpret_cast<const std::byte*>(values.data())};
    const std::vector<TensorToWrite> items = {{view, transposed()}};
    write_safetensors(directory / "m", std::span<const TensorToWrite>(items));
    const SafetensorsFile file(directory / "m");
    const TensorView read = file.view("w");
    ASSERT_EQ(read.shape, (std::vector<std::int64_t>{columns, rows}));
    for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) {
            std::uint16_t value;
            std::memcpy(&value, read.data + (c * rows + r) * 2, 2);
            ASSERT_EQ(value, values[static_cast<std::size_t>(r * columns + c)]) << r << ", " << c;
        }
}

TEST(SafetensorsWriter, PutsAxesInAnyOrder) {
    const TemporaryDirectory directory;
    // Filters [R, S, C, K] as [K, C, R, S], more than one gathered piece of them; and columns [H, W, C] of a
    // matrix as [C, H, W].
    constexpr std::int64_t R = 3, S = 5, C = 37, K = 1031, H = 2, W = 3;
    std::vector<std::uint16_t> values(R * S * C * K);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 40503u >> 3);
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    const std::vector<TensorToWrite> items = {
        {{"filter", DType::bf16, {R, S, C, K}, bytes}, {.axes = {3, 2, 0, 1}}},
        {{"matrix", DType::bf16, {K, H * W * C}, bytes}, {.axes = {0, 3, 1, 2}, .seen_as = {K, H, W, C}}}};
    write_safetensors(directory / "m", std::span<const TensorToWrite>(items));
    const SafetensorsFile file(directory / "m");
    const TensorView filter = file.view("filter"), matrix = file.view("matrix");
    ASSERT_EQ(filter.shape, (std::vector<std::int64_t>{K, C, R, S}));
    ASSERT_EQ(matrix.shape, (std::vector<std::int64_t>{K, H * W * C}));
    const auto expect_from = [&](const TensorView& read, std::int64_t at, std::int64_t from) {
        std::uint16_t value;
        std::memcpy(&value, read.data + at * 2, 2);
        ASSERT_EQ(value, values[static_cast<std::size_t>(from)]) << read.name << " " << at;
    };
    for (std::int64_t k = 0; k < K; ++k)
        for (std::int64_t c = 0; c < C; ++c) {
            for (std::int64_t p = 0; p < R * S; ++p)
                expect_from(filter, (k * C + c) * R * S + p, (p * C + c) * K + k);
            for (std::int64_t p = 0; p < H * W; ++p)
                expect_from(matrix, (k * C + c) * H * W + p, (k * H * W + p) * C + c);
        }
}

TEST(SafetensorsWriter, RefusesNamesThatCannotBe) {
    const TemporaryDirectory directory;
    const std::vector<std::byte> zeros(4);
    const auto message_for = [&](const std::string& a, const std::string& b) -> std::string {
        const std::vector<TensorView> tensors = {{a, DType::f32, {1}, zeros.data()},
                                                 {b, DType::f32, {1}, zeros.data()}};
        try {
            write_safetensors("m", tensors);
        } catch (const UserError& error) {
            return error.what();
        }
        return "written";
    };
    EXPECT_EQ(message_for("w", "w"), "m: cannot write a tensor named \"w\": the name is given twice");
    EXPECT_EQ(message_for("w", "__metadata__"),
              "m: cannot write a tensor named \"__metadata__\": the name is reserved");
    EXPECT_EQ(message_for("w", "\xFF"),
              "m: a name or a metadata text is not valid UTF-8, which the format demands");
}

class Sharded : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::vector<TensorView> one = {{"a", DType::u8, {2}, data}},
                                      two = {{"b", DType::u8, {1}, data + 2}};
        write_safetensors(directory / "model-00001-of-00002.safetensors", one);
        write_safetensors(directory / "model-00002-of-00002.safetensors", two);
    }
    std::string verdict(const std::string& weight_map) {
        std::ofstream(directory / "model.safetensors.index.json")
            << R"({"metadata":{"total_size":3},"weight_map":)" << weight_map << "}";
        try {
            std::string names;
            const SafetensorsModel model(directory.path());
            for (const TensorView& view : model.views()) names += view.name + static_cast<char>(*view.data);
            return names;
        } catch (const UserError& error) {
            const std::string message = error.what();
            const std::string prefix = directory.path().string() + "/";
            EXPECT_EQ(message.rfind(prefix, 0), 0u) << message;
            return message.substr(prefix.size());
        }
    }
    const std::byte data[3] = {std::byte{'x'}, std::byte{'y'}, std::byte{'z'}};
    TemporaryDirectory directory;
};

TEST_F(Sharded, ReadsAllFilesOfTheIndex) {
    EXPECT_EQ(verdict(R"({"b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors"})"),
              "axbz");
    const std::vector<TensorView> whole = {{"w", DType::u8, {1}, data}};
    write_safetensors(directory / "model.safetensors", whole);
    EXPECT_EQ(SafetensorsModel(directory / "model.safetensors").views().size(), 1u);
    EXPECT_EQ(SafetensorsModel(directory.path()).views()[0].name,
              "w");  // the whole file is preferred to the index
}

/// As transformers, which asks an index for files alone.
TEST_F(Sharded, TensorsThatAnIndexListsInVainOrLeavesOutAreTheReadersBusiness) {
    EXPECT_EQ(verdict(R"({"b":"model-00002-of-00002.safetensors"})"), "bz");
    EXPECT_EQ(verdict(R"({"a":"model-00001-of-00002.safetensors","x":"model-00001-of-00002.safetensors"})"),
              "ax");
}

TEST_F(Sharded, RefusesAnIndexThatDisagrees) {
    const std::vector<TensorView> again = {{"a", DType::u8, {1}, data}};
    write_safetensors(directory / "again.safetensors", again);
    EXPECT_EQ(verdict(R"({"a":"model-00001-of-00002.safetensors","b":"again.safetensors"})"),
              "model.safetensors.index.json: tensor \"a\" is both in again.safetensors and in "
              "model-00001-of-00002.safetensors");
    const std::string wrong =
        R"({"b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"})";
    EXPECT_EQ(verdict(wrong),
              "model.safetensors.index.json: weight_map, \"a\": says model-00002-of-00002.safetensors, but "
              "the tensor is in model-00001-of-00002.safetensors; was a file renamed?");
    EXPECT_EQ(verdict(R"({"a":"gone.safetensors"})"),
              "gone.safetensors: cannot open: No such file or directory");
    EXPECT_EQ(verdict(R"({"a":"../x.safetensors"})"),
              "model.safetensors.index.json: weight_map, \"a\": expected the name of a file beside the "
              "index, found \"../x.safetensors\"");
    EXPECT_EQ(verdict("[]"), "model.safetensors.index.json: weight_map: expected an object, found an array");
    EXPECT_EQ(verdict(R"({"a":1})"),
              "model.safetensors.index.json: weight_map, \"a\": expected a string, found 1");
    const TemporaryDirectory none;
    EXPECT_THROW(SafetensorsModel(none.path()), UserError);
}

}  // namespace
}  // namespace mantissa
