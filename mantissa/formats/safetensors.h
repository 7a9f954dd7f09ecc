// Reads and checks safetensors files. A file is accepted only if every byte of it is accounted for; errors
// name the file, the tensor and the reason. docs/formats.md lists the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/formats/tensor_view.h"

namespace mantissa::inline v0 {

/// A tensor of a file. `data` is in the mapped file and may be unaligned: old writers did not pad the header.
struct SafetensorsEntry {
    std::string name;
    std::string dtype;                 ///< as in the file: "F32", "F8_E4M3"...
    std::vector<std::uint64_t> shape;  ///< empty for a scalar; may hold a 0
    std::uint64_t begin = 0, end = 0;  ///< bytes of the data, counted from the end of the header
    std::span<const std::byte> data;
};

/// The contents of a file. Views point into the parsed bytes.
struct SafetensorsContents {
    std::vector<SafetensorsEntry> tensors;        ///< in the order of their bytes
    std::map<std::string, std::string> metadata;  ///< the header's `__metadata__`
    std::uint64_t header_size = 0;                ///< bytes before the data: 8 + the header's length
};

/// Largest header for reading and writing, in bytes (the reference implementation's limit).
inline constexpr std::uint64_t safetensors_max_header = 100'000'000;

/// Checks and indexes `file`, the bytes of a whole file. Throws UserError that begins with `source`.
SafetensorsContents parse_safetensors(std::span<const std::byte> file, const std::string& source);

/// Our type for a safetensors type; none for types that no tensor here has (F8_E4M3...).
std::optional<DType> dtype_of_safetensors(std::string_view name);
/// "F32" for f32...
std::string_view safetensors_name_of(DType dtype);
/// Bits of an element of a safetensors type; 0 for an unknown name.
unsigned safetensors_bits(std::string_view name);

/// A file mapped into memory and checked.
class SafetensorsFile {
  public:
    explicit SafetensorsFile(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }
    const std::vector<SafetensorsEntry>& tensors() const { return contents_.tensors; }
    const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
    std::uint64_t header_size() const { return contents_.header_size; }
    std::span<const std::byte> bytes() const { return file_.bytes(); }
    /// Releases the memory of tensors that were read; views stay valid.
    void release() const { file_.release(); }

    /// Null if there is no such tensor.
    const SafetensorsEntry* find(std::string_view name) const;
    /// Throws UserError if there is no such tensor, or we do not have its type.
    TensorView view(std::string_view name) const;
    /// All tensors; throws UserError for a type that we do not have.
    std::vector<TensorView> views() const;

  private:
    TensorView view_of(const SafetensorsEntry& entry) const;

    std::filesystem::path path_;
    MappedFile file_;
    SafetensorsContents contents_;
    std::map<std::string, std::size_t, std::less<>> index_;
};

/// A model in one file, or in several that an index file ("model.safetensors.index.json") lists.
class SafetensorsModel {
  public:
    /// `path`: a .safetensors file, an index (any name that ends in .json), or a directory with
    /// model.safetensors or model.safetensors.index.json. An index tells the files of tensors; callers check
    /// for tensors that it lists but files lack, or the reverse, as in other readers. Throws UserError if a
    /// file is missing or bad, or a tensor is in two files, or not in the indexed one.
    explicit SafetensorsModel(const std::filesystem::path& path);

    const std::string& source() const { return source_; }
    /// All tensors of all files; throws UserError for a type that we do not have.
    std::vector<TensorView> views() const;
    /// As SafetensorsFile::release.
    void release() const {
        for (const SafetensorsFile& file : files_) file.release();
    }

  private:
    void read_index(const std::filesystem::path& path);

    std::string source_;
    std::vector<SafetensorsFile> files_;
};

}  // namespace mantissa
