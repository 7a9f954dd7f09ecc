// Reading files whole or mapped, with errors that name the file and the reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// A file mapped read-only into memory.
class MappedFile {
  public:
    /// Throws UserError if `path` cannot be opened or mapped, or is not a regular file.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
    std::size_t size() const { return size_; }
    /// Gives back the memory of what was read; what is read again comes from the file again.
    void release() const;

  private:
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The whole file. Throws UserError if it cannot be read.
std::string read_file(const std::filesystem::path& path);

}  // namespace mantissa
