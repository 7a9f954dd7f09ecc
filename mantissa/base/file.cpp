#include "mantissa/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
    throw UserError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

/// Opens a regular file for reading and finds its size.
std::pair<int, std::uint64_t> open_to_read(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(path, "cannot open", errno);
    struct stat status {};
    const int error = ::fstat(fd, &status) != 0 ? errno : 0;
    if (error == 0 && S_ISREG(status.st_mode)) return {fd, static_cast<std::uint64_t>(status.st_size)};
    ::close(fd);
    if (error != 0) fail(path, "cannot read its size", error);
    throw UserError(fmt::format("{}: {}; expected a file", path.string(),
                                S_ISDIR(status.st_mode) ? "is a folder" : "is a pipe or a device"));
}

/// A mapping and its file's name, for mapped_file_at: a slot is free while its name is null.
struct Mapping {
    std::atomic<const char*> name = nullptr;
    std::atomic<const std::byte*> begin = nullptr;
    std::atomic<std::size_t> size = 0;
};

/// More are mapped without being known by name.
std::array<Mapping, 256> mappings;

void add_mapping(const std::byte* begin, std::size_t size, const char* name) {
    for (Mapping& mapping : mappings) {
        const char* free = nullptr;
        if (!mapping.name.compare_exchange_strong(free, name)) continue;
        mapping.size = size;
        mapping.begin = begin;
        return;
    }
}

void remove_mapping(const std::byte* begin) {
    for (Mapping& mapping : mappings)
        if (mapping.begin == begin) {
            mapping.begin = nullptr;
            mapping.name = nullptr;
            return;
        }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path)
    : name_(std::make_unique<std::string>(path.string())) {
    const auto [fd, size] = open_to_read(path);
    size_ = static_cast<std::size_t>(size);
    // An empty mapping is an error to the system, not to us.
    void* const mapping = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    ::close(fd);
    if (mapping == MAP_FAILED) fail(path, "cannot map into memory", error);
    data_ = static_cast<const std::byte*>(mapping);
    if (data_) add_mapping(data_, size_, name_->c_str());
}

MappedFile::~MappedFile() {
    if (!data_) return;
    remove_mapping(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release() const {
    if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

const char* mapped_file_at(const void* address) noexcept {
    const auto* const at = static_cast<const std::byte*>(address);
    for (const Mapping& mapping : mappings) {
        const std::byte* const begin = mapping.begin;
        if (begin && begin <= at && at < begin + mapping.size) return mapping.name;
    }
    return nullptr;
}

OpenFile::OpenFile(const std::filesystem::path& path) : path_(path) {
    std::tie(fd_, size_) = open_to_read(path);
}

OpenFile::~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

void OpenFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t done = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(path_, "cannot be read", errno);
        if (done == 0)
            throw UserError(fmt::format(
                "{}: was cut short while it was read: it had {} bytes, of which those from {} on are gone",
                path_.string(), size_, offset));
        offset += static_cast<std::uint64_t>(done);
        bytes = bytes.subspan(done);
    }
}

std::string read_file(const std::filesystem::path& path) { return std::string(MappedFile(path).text()); }

namespace {

namespace fs = std::filesystem;

/// `entered`: the folders, without links, in which nothing is looked for any more.
void add_files(const fs::path& folder, std::set<fs::path>& entered, FolderFiles& found) {
    std::error_code error;
    if (!entered.insert(fs::canonical(folder, error)).second) {
        found.unfollowed.push_back(folder);
        return;
    }
    FolderContents contents = contents_of(folder);
    found.hidden += contents.hidden;
    found.files.insert(found.files.end(), contents.files.begin(), contents.files.end());
    found.unfollowed.insert(found.unfollowed.end(), contents.dangling.begin(), contents.dangling.end());
    for (const fs::path& inside : contents.folders) add_files(inside, entered, found);
}

void sort_by_name(std::vector<fs::path>& paths) {
    std::ranges::sort(paths, {}, [](const fs::path& path) { return path.native(); });
}

}  // namespace

FolderFiles files_below(const fs::path& folder) {
    FolderFiles found;
    std::set<fs::path> entered;
    std::error_code error;
    const fs::path whole = fs::canonical(folder, error);
    for (fs::path above = whole.parent_path(); entered.insert(above).second; above = above.parent_path()) {
    }
    add_files(folder, entered, found);
    sort_by_name(found.files);
    return found;
}

FolderContents contents_of(const fs::path& folder) {
    FolderContents contents;
    std::error_code error;
    try {
        for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
            if (entry.path().filename().native().starts_with('.'))
                ++contents.hidden;
            else if (entry.is_directory(error))
                contents.folders.push_back(entry.path());
            else if (entry.is_regular_file(error))
                contents.files.push_back(entry.path());
            else if (!entry.exists(error))
                contents.dangling.push_back(entry.path());
        }
    } catch (const fs::filesystem_error& failed) {
        throw UserError(fmt::format("{}: cannot be read: {}", folder.string(), failed.code().message()));
    }
    for (auto* each : {&contents.folders, &contents.files, &contents.dangling}) sort_by_name(*each);
    return contents;
}

std::filesystem::path cache_folder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    if (cache && *cache == '/') return std::filesystem::path(cache) / "mantissa";
    const char* const home = std::getenv("HOME");
    if (home && *home == '/') return std::filesystem::path(home) / ".cache" / "mantissa";
    return {};
}

}  // namespace mantissa
