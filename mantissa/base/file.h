// Reading files whole or mapped, with errors that name the file and the reason. The files below a folder, as
// everything that is given a folder takes them; and the folder of caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
    /// Gives back the memory of the bytes that were read. Bytes that are read once more come from the file
    /// again.
    void release() const;

  private:
    std::unique_ptr<const std::string> name_;  // stays where it is when the MappedFile is moved
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The file whose mapping holds the address, if it is one of a MappedFile; else null. A signal handler may
/// call it: reading a mapping of a file that was cut short meanwhile raises SIGBUS.
const char* mapped_file_at(const void* address) noexcept;

/// A file that is read here and there, over any time: if it is cut short meanwhile, that is an error and no
/// signal.
class OpenFile {
  public:
    /// Throws UserError if `path` cannot be opened or is not a regular file.
    explicit OpenFile(const std::filesystem::path& path);
    ~OpenFile();
    OpenFile(OpenFile&& other) noexcept;
    OpenFile& operator=(OpenFile&&) = delete;

    std::uint64_t size() const { return size_; }  ///< when it was opened
    /// The bytes from `offset` on. Throws UserError if they cannot be read, or are not there any more.
    void read(std::uint64_t offset, std::span<std::byte> bytes) const;

  private:
    std::filesystem::path path_;
    int fd_ = -1;
    std::uint64_t size_ = 0;
};

/// The whole file. Throws UserError if it cannot be read.
std::string read_file(const std::filesystem::path& path);

struct FolderFiles {
    std::vector<std::filesystem::path> files;  ///< sorted by name
    /// Links to nothing, to a folder above, or to one that was entered already.
    std::vector<std::filesystem::path> unfollowed;
    std::uint64_t hidden = 0;  ///< files and folders that were passed over
};

/// All files in a folder and in those inside it. Hidden files and folders (names that begin with a dot) are
/// passed over. Links are followed, but no folder is entered twice. Throws UserError that
/// names a folder that cannot be read.
FolderFiles files_below(const std::filesystem::path& folder);

/// The entries of one folder, linked or not, that are not hidden.
struct FolderContents {
    std::vector<std::filesystem::path> folders, files, dangling;  ///< sorted by name; links to nothing apart
    std::uint64_t hidden = 0;
};

/// Throws as above.
FolderContents contents_of(const std::filesystem::path& folder);

/// The folder mantissa in $XDG_CACHE_HOME, else in ~/.cache, by the XDG base directory specification: paths
/// that are not absolute do not count. Empty where neither is known.
std::filesystem::path cache_folder();

}  // namespace mantissa
