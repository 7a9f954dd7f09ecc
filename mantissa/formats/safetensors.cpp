#include "mantissa/formats/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& source, const std::string& reason) {
    throw UserError(source + ": " + reason);
}

std::string in_quotes(std::string_view name) { return json_excerpt(Json(std::string(name))); }

/// Kinds of weight files that are mistaken for this one, by their first bytes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> other_kinds = {
    {{"PK\x03\x04", "PyTorch's pickle, or another archive"},
     {{"\x80\x02", 2}, "PyTorch's old pickle"},
     {"GGUF", "GGUF"},
     {"\x89HDF", "HDF5, as Keras writes it"}}};

/// The length of the header, after checking that the file can hold it.
std::uint64_t header_length(std::span<const std::byte> file, const std::string& source) {
    if (file.size() < 8)
        refuse(source,
               fmt::format("not a safetensors file: {} bytes, shorter than the 8 of its header length",
                           file.size()));
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<std::uint64_t>(file[i]);
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (length > safetensors_max_header)
        for (const auto& [begins, kind] : other_kinds)
            if (text.starts_with(begins))
                refuse(source, fmt::format("not a safetensors file but {}; write its tensors by "
                                           "safetensors.torch.save_file(state_dict, \"NAME.safetensors\")",
                                           kind));
    if (length > safetensors_max_header)
        refuse(source, fmt::format("not a safetensors file: header length {}, the limit is {}", length,
                                   safetensors_max_header));
    if (length > file.size() - 8)
        refuse(source,
               fmt::format("header cut short: its length is {} bytes, the file has {} after the length",
                           length, file.size() - 8));
    return length;
}

/// An entry of the header; its numbers have the right types, but their meaning is not checked yet.
SafetensorsEntry read_entry(const std::string& name, const Json& value, const std::string& source) {
    const std::string what = "tensor " + in_quotes(name);
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = require_string(require_member(value, "dtype", source, what), source, what + ", dtype");
    const Json& shape = require_member(value, "shape", source, what);
    if (!shape.is_array())
        refuse(source, fmt::format("{}, shape: expected an array, found {}", what, json_excerpt(shape)));
    for (const Json& size : shape) entry.shape.push_back(require_unsigned(size, source, what + ", shape"));
    const Json& offsets = require_member(value, "data_offsets", source, what);
    if (!offsets.is_array() || offsets.size() != 2)
        refuse(source, what + ", data_offsets: expected two unsigned integers");
    entry.begin = require_unsigned(offsets[0], source, what + ", data_offsets");
    entry.end = require_unsigned(offsets[1], source, what + ", data_offsets");
    return entry;
}

/// Bytes implied by the type and shape of `entry`.
std::uint64_t required_bytes(const SafetensorsEntry& entry, const std::string& source) {
    const std::string what = "tensor " + in_quotes(entry.name);
    // Multiplies all factors before it looks at a zero dimension: a product that wraps around to 0 is an
    // attack.
    std::uint64_t bits = 1;
    bool fits = true;
    for (const std::uint64_t size : entry.shape) fits = fits && !__builtin_mul_overflow(bits, size, &bits);
    const unsigned bits_each = safetensors_bits(entry.dtype);
    if (bits_each == 0) refuse(source, fmt::format("{}: unknown dtype {}", what, in_quotes(entry.dtype)));
    fits = fits && !__builtin_mul_overflow(bits, std::uint64_t{bits_each}, &bits);
    if (!fits)
        refuse(source, fmt::format("{}: shape [{}] of {} has more bits than 64 bits can count", what,
                                   fmt::join(entry.shape, ", "), entry.dtype));
    if (bits % 8 != 0)
        refuse(source, fmt::format("{}: shape [{}] of {} ends within a byte", what,
                                   fmt::join(entry.shape, ", "), entry.dtype));
    return bits / 8;
}

/// Tensors must be contiguous, without hole or overlap, each with the bytes of its shape, up to the file's
/// end.
void check_layout(std::span<SafetensorsEntry> tensors, std::span<const std::byte> data,
                  const std::string& source) {
    std::uint64_t position = 0;
    for (SafetensorsEntry& entry : tensors) {
        const std::string what = "tensor " + in_quotes(entry.name);
        if (entry.begin != position || entry.end < entry.begin)
            refuse(source,
                   fmt::format("{}: data_offsets [{}, {}], expected to begin at {} (no hole, no overlap)",
                               what, entry.begin, entry.end, position));
        const std::uint64_t required = required_bytes(entry, source);
        if (entry.end - entry.begin != required)
            refuse(source, fmt::format("{}: data_offsets [{}, {}] hold {} bytes, shape [{}] of {} needs {}",
                                       what, entry.begin, entry.end, entry.end - entry.begin,
                                       fmt::join(entry.shape, ", "), entry.dtype, required));
        if (entry.end > data.size())
            refuse(source, fmt::format("{}: data cut short: ends at byte {}, the file has {} bytes of data",
                                       what, entry.end, data.size()));
        entry.data = data.subspan(entry.begin, required);
        position = entry.end;
    }
    if (position != data.size())
        refuse(source, fmt::format("{} after the last tensor{}", count_text(data.size() - position, "byte"),
                                   tensors.empty() ? "" : " " + in_quotes(tensors.back().name)));
}

std::map<std::string, std::string> read_metadata(const Json& value, const std::string& source) {
    if (value.is_null()) return {};  // some writers write null for none
    if (!value.is_object())
        refuse(source, "__metadata__: expected an object of strings, found " + json_excerpt(value));
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items())
        metadata[key] = require_string(text, source, "__metadata__, " + in_quotes(key));
    return metadata;
}

}  // namespace

SafetensorsContents parse_safetensors(std::span<const std::byte> file, const std::string& source) {
    const std::uint64_t length = header_length(file, source);
    const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
    const Json header = parse_strict_json(text, source + ": header");
    if (!header.is_object()) refuse(source, "header: expected a JSON object, found " + json_excerpt(header));
    SafetensorsContents contents;
    contents.header_size = 8 + length;
    for (const auto& [name, value] : header.items()) {
        if (name == "__metadata__")
            contents.metadata = read_metadata(value, source);
        else
            contents.tensors.push_back(read_entry(name, value, source));
    }
    std::sort(contents.tensors.begin(), contents.tensors.end(),
              [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                  return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
              });
    check_layout(contents.tensors, file.subspan(contents.header_size), source);
    return contents;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), contents_(parse_safetensors(file_.bytes(), path.string())) {
    for (std::size_t i = 0; i < contents_.tensors.size(); ++i) index_[contents_.tensors[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &contents_.tensors[found->second];
}

TensorView SafetensorsFile::view(std::string_view name) const {
    const SafetensorsEntry* entry = find(name);
    if (!entry) refuse(path_.string(), fmt::format("tensor {} is missing", in_quotes(name)));
    return view_of(*entry);
}

std::vector<TensorView> SafetensorsFile::views() const {
    std::vector<TensorView> views;
    for (const SafetensorsEntry& entry : tensors()) views.push_back(view_of(entry));
    return views;
}

TensorView SafetensorsFile::view_of(const SafetensorsEntry& entry) const {
    const std::optional<DType> dtype = dtype_of_safetensors(entry.dtype);
    if (!dtype)
        refuse(path_.string(),
               fmt::format("tensor {}: dtype {} has no counterpart here; convert the file to F32, "
                           "F16 or BF16",
                           in_quotes(entry.name), entry.dtype));
    for (const std::uint64_t size : entry.shape)
        if (size > INT64_MAX)  // possible only for an empty tensor
            refuse(path_.string(),
                   fmt::format("tensor {}: dimension {} is too large", in_quotes(entry.name), size));
    return {entry.name, *dtype, {entry.shape.begin(), entry.shape.end()}, entry.data.data()};
}

SafetensorsModel::SafetensorsModel(const std::filesystem::path& path) : source_(path.string()) {
    namespace fs = std::filesystem;
    if (fs::is_directory(path)) {
        const fs::path whole = path / "model.safetensors", index = path / "model.safetensors.index.json";
        if (!fs::exists(whole) && !fs::exists(index))
            refuse(source_, "holds neither model.safetensors nor model.safetensors.index.json");
        fs::exists(whole) ? static_cast<void>(files_.emplace_back(whole)) : read_index(index);
    } else if (path.extension() == ".json") {
        read_index(path);
    } else {
        files_.emplace_back(path);
    }
}

void SafetensorsModel::read_index(const std::filesystem::path& path) {
    const std::string source = path.string();
    const Json index = parse_strict_json(MappedFile(path).text(), source);
    const Json& weights = require_member(index, "weight_map", source, "index");
    if (!weights.is_object())
        refuse(source, "weight_map: expected an object, found " + json_excerpt(weights));
    std::set<std::string> names;
    for (const auto& [name, value] : weights.items()) {
        const std::string& file = require_string(value, source, "weight_map, " + in_quotes(name));
        if (file.empty() || file.find('/') != file.npos || file == "." || file == "..")
            refuse(source,
                   fmt::format("weight_map, {}: expected the name of a file beside the index, found {}",
                               in_quotes(name), in_quotes(file)));
        names.insert(file);
    }
    std::map<std::string, std::string> file_of_tensor;
    for (const std::string& name : names)
        for (const SafetensorsEntry& entry : files_.emplace_back(path.parent_path() / name).tensors())
            if (const auto [other, is_new] = file_of_tensor.emplace(entry.name, name); !is_new)
                refuse(source, fmt::format("tensor {} is both in {} and in {}", in_quotes(entry.name),
                                           other->second, name));
    for (const auto& [name, value] : weights.items())
        if (const auto found = file_of_tensor.find(name);
            found != file_of_tensor.end() && found->second != value.get<std::string>())
            refuse(source,
                   fmt::format("weight_map, {}: says {}, but the tensor is in {}; was a file renamed?",
                               in_quotes(name), value.get<std::string>(), found->second));
}

std::vector<TensorView> SafetensorsModel::views() const {
    std::vector<TensorView> views;
    for (const SafetensorsFile& file : files_)
        for (TensorView& view : file.views()) views.push_back(std::move(view));
    return views;
}

namespace {

struct Row {
    std::string_view name;
    unsigned bits;
    std::optional<DType> dtype;
};

constexpr std::array<Row, 22> rows = {{
    {"BOOL", 8, DType::boolean},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},
    {"I8", 8, DType::s8},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, {}},
    {"F32", 32, DType::f32},
    {"C64", 64, {}},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, {}},
}};

const Row* row_of(std::string_view name) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
    return row == rows.end() ? nullptr : &*row;
}

}  // namespace

std::optional<DType> dtype_of_safetensors(std::string_view name) {
    const Row* row = row_of(name);
    return row ? row->dtype : std::nullopt;
}

std::string_view safetensors_name_of(DType dtype) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.dtype == dtype; });
    return row == rows.end() ? std::string_view() : row->name;
}

unsigned safetensors_bits(std::string_view name) {
    const Row* row = row_of(name);
    return row ? row->bits : 0;
}

}  // namespace mantissa
