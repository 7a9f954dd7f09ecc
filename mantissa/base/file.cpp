#include "mantissa/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// Closes the descriptor when it goes out of scope.
struct Descriptor {
    int fd;
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
};

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
    throw UserError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.fd < 0) fail(path, "cannot open", errno);
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail(path, "cannot read its size", errno);
    if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("{}: expected a regular file", path.string()));
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;  // an empty mapping is an error to the system, not to us
    void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (mapping == MAP_FAILED) fail(path, "cannot map into memory", errno);
    data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release() const {
    if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

std::string read_file(const std::filesystem::path& path) { return std::string(MappedFile(path).text()); }

}  // namespace mantissa
