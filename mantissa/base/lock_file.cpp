#include "mantissa/base/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// Whether the name still stands for the open file: its last owner may have removed it meanwhile.
bool is_at(const std::filesystem::path& name, int fd) {
    struct stat opened {
    }, named{};
    return ::fstat(fd, &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/// The process that holds the file, as it wrote it there.
std::string owner(int fd) {
    std::array<char, 32> digits{};
    const ssize_t read = ::pread(fd, digits.data(), digits.size(), 0);
    return read > 0 ? std::string(digits.data(), static_cast<std::size_t>(read)) : "of unknown number";
}

}  // namespace

LockFile::LockFile(std::filesystem::path file, std::string_view place) : file_(std::move(file)) {
    for (;;) {
        fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd_ < 0)
            throw UserError(
                fmt::format("{}: cannot create {}: {}", place, file_.string(), std::strerror(errno)));
        if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            const std::string holder = owner(fd_);
            ::close(fd_);
            throw UserError(
                fmt::format("{}: process {} writes there; wait until it has ended, or choose another place",
                            place, holder));
        }
        if (is_at(file_, fd_)) break;
        ::close(fd_);
    }
    // Only for the message above, so that it need not succeed.
    const std::string process = std::to_string(::getpid());
    if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, process.data(), process.size(), 0) < 0) errno = 0;
}

LockFile::~LockFile() {
    ::unlink(file_.c_str());
    ::close(fd_);
}

}  // namespace mantissa
