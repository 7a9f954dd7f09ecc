#include "mantissa/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

fs::path parent_of(const fs::path& path) {
    const fs::path parent = path.parent_path();
    return parent.empty() ? fs::path(".") : parent;
}

/// "ckpt/" names the same directory as "ckpt", but has no file name to put a suffix on.
fs::path without_trailing_slash(fs::path path) {
    return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

fs::path with_suffix(const fs::path& path, const std::string& suffix) {
    return fs::path(path.string() + suffix);
}

/// Bytes that this user may still write where `path` lies; the largest number where the system does not say,
/// or has no disk there, as in /proc.
std::uint64_t free_bytes(fs::path path) {
    struct statvfs status {};
    while (::statvfs(path.c_str(), &status) != 0) {
        if (errno != ENOENT || path == parent_of(path)) return UINT64_MAX;
        path = parent_of(path);
    }
    return status.f_blocks == 0 ? UINT64_MAX : std::uint64_t{status.f_bavail} * status.f_frsize;
}

[[noreturn]] void refuse(const fs::path& path, const char* what, int error) {
    throw UserError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

/// Makes renames and new names in `directory` survive a power cut.
void sync_directory(const fs::path& directory) {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) refuse(directory, "cannot open directory", errno);
    // Some file systems cannot sync a directory and say EINVAL; there is nothing better to do on them.
    const int error = ::fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    ::close(fd);
    if (error) refuse(directory, "cannot sync directory", error);
}

/// Swaps two names in one step. False where the file system cannot.
bool exchange(const fs::path& a, const fs::path& b) {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    refuse(b, "cannot put the new directory in place", errno);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) refuse(to, "cannot rename to this name", errno);
}

/// Removes TARGET.tmp.PID where no process PID is alive, or where it is ours.
void remove_abandoned(const fs::path& target) {
    const std::string prefix = target.filename().string() + ".tmp.";
    std::error_code ignored;
    for (fs::directory_iterator it(parent_of(target), ignored), end; it != end; it.increment(ignored)) {
        const std::string name = it->path().filename().string();
        if (!name.starts_with(prefix)) continue;
        pid_t pid = 0;
        const char* last = name.data() + name.size();
        const auto parsed = std::from_chars(name.data() + prefix.size(), last, pid);
        if (parsed.ec != std::errc{} || parsed.ptr != last || pid <= 0) continue;
        if (pid == ::getpid() || (::kill(pid, 0) != 0 && errno == ESRCH)) fs::remove_all(it->path(), ignored);
    }
}

}  // namespace

void require_free_space(const fs::path& path, std::uint64_t bytes, std::string_view purpose) {
    const std::uint64_t free = free_bytes(parent_of(path));
    if (free < bytes)
        throw UserError(
            fmt::format("{}: not enough disk space: {} bytes needed, {} free; free some or choose another "
                        "place",
                        purpose, bytes, free));
}

void require_folder_for(const fs::path& path) {
    if (!fs::is_directory(parent_of(path)))
        throw UserError(fmt::format("{}: there is no folder {}; make it, or name another place",
                                    path.string(), parent_of(path).string()));
}

void make_folder(const fs::path& folder) {
    std::error_code error;
    if (fs::is_directory(folder, error)) return;
    require_folder_for(without_trailing_slash(folder));
    if (!fs::create_directory(folder, error)) refuse(folder, "cannot make the folder", error.value());
}

AtomicFile::AtomicFile(fs::path target, std::uint64_t size)
    : target_(std::move(target)),
      temporary_(with_suffix(target_, fmt::format(".tmp.{}", ::getpid()))),
      size_(size) {
    require_free_space(target_, size_, target_.string());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0 && errno == ENOENT && !fs::exists(parent_of(target_)))
        throw UserError(fmt::format("{}: cannot create: there is no folder {}", target_.string(),
                                    parent_of(target_).string()));
    if (fd_ < 0) refuse(target_, "cannot create", errno);
    // Reserves the space where the file system can, so that a disk filled by others meanwhile is noticed now.
    if (size_ > 0 && ::fallocate(fd_, 0, 0, static_cast<off_t>(size_)) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
        const int error = errno;
        ::close(std::exchange(fd_, -1));
        ::unlink(temporary_.c_str());
        fail("cannot reserve space", error);
    }
}

AtomicFile::~AtomicFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      size_(other.size_),
      written_(other.written_),
      reached_(other.reached_),
      fd_(std::exchange(other.fd_, -1)) {}

void AtomicFile::write(std::span<const std::byte> bytes) {
    write_at(written_, bytes);
    written_ += bytes.size();
}

void AtomicFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
    check(offset <= written_ && bytes.size() <= written_ - offset, "overwrite stays within what was written");
    write_at(offset, bytes);
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    reached_ = std::max<std::uint64_t>(reached_, offset + bytes.size());
    check(fd_ >= 0, "the file is written before it is committed");
    while (!bytes.empty()) {
        // Linux moves at most 2 GiB in one call.
        const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{64} << 20);
        const ssize_t done = ::pwrite(fd_, bytes.data(), piece, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) fail("cannot write", done < 0 ? errno : EIO);
        bytes = bytes.subspan(done);
        offset += static_cast<std::uint64_t>(done);
    }
}

void AtomicFile::commit() {
    check(size_ == 0 || written_ == size_, "the file has the size that was announced");
    if (::fsync(fd_) != 0) fail("cannot sync", errno);
    commit_unsynced();
    sync_directory(parent_of(target_));
}

void AtomicFile::commit_unsynced() {
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot close", errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot rename to this name", errno);
    temporary_.clear();
}

void AtomicFile::fail(const char* what, int error) const {
    const std::string needed =
        size_ ? fmt::format("{} bytes needed", size_) : fmt::format("at least {} bytes needed", reached_);
    // Free space on the disk does not matter for these errors.
    const char* const bound = error == EFBIG    ? "no file may be so large here; raise the limit (ulimit -f)"
                              : error == EDQUOT ? "your quota on this disk has no more; free some of it"
                                                : nullptr;
    if (bound)
        throw UserError(fmt::format("{}: {}: {}: {}, but {}, or choose another place", target_.string(), what,
                                    std::strerror(error), needed, bound));
    if (error != ENOSPC) refuse(target_, what, error);
    throw UserError(fmt::format("{}: {}: {}: {}, {} free; free some or choose another place",
                                target_.string(), what, std::strerror(error), needed,
                                free_bytes(parent_of(target_))));
}

fs::path AtomicDirectory::previous_of(const fs::path& target) {
    return with_suffix(without_trailing_slash(target), ".previous");
}

fs::path AtomicDirectory::target_of(const fs::path& previous) {
    const fs::path name = without_trailing_slash(previous);
    return name.extension() == ".previous" ? fs::path(name).replace_extension() : fs::path();
}

fs::path AtomicDirectory::set_aside(const fs::path& target) {
    const fs::path from = without_trailing_slash(target);
    if (!fs::exists(from)) return {};
    fs::path to = with_suffix(from, ".aside");
    for (int i = 2; fs::exists(fs::symlink_status(to)); ++i)
        to = with_suffix(from, fmt::format(".aside-{}", i));
    rename_or_throw(from, to);
    sync_directory(parent_of(from));
    return to;
}

fs::path AtomicDirectory::lock_of(const fs::path& target) {
    return with_suffix(without_trailing_slash(target), ".lock");
}

void write_whole(const fs::path& target, std::string_view text) {
    AtomicFile file(target, text.size());
    file.write(text);
    file.commit();
}

AtomicDirectory::AtomicDirectory(fs::path target, std::uint64_t bytes)
    : target_(without_trailing_slash(std::move(target))),
      staging_(with_suffix(target_, fmt::format(".tmp.{}", ::getpid()))) {
    require_folder_for(target_);
    remove_abandoned(target_);
    require_free_space(target_, bytes, target_.string());
    std::error_code error;
    if (!fs::create_directory(staging_, error)) refuse(target_, "cannot create directory", error.value());
}

AtomicDirectory::~AtomicDirectory() {
    if (committed_) return;
    std::error_code ignored;
    fs::remove_all(staging_, ignored);
}

void AtomicDirectory::commit() {
    sync_directory(staging_);
    const fs::path previous = previous_of(target_);
    if (!fs::exists(target_)) {
        rename_or_throw(staging_, target_);
    } else if (exchange(staging_, target_)) {
        // The target is new and whole from here on; staging holds the former target.
        if (!fs::exists(previous))
            rename_or_throw(staging_, previous);
        else
            check(exchange(staging_, previous), "names of one directory can be exchanged twice");
    } else {
        // Without an exchange there is a moment in which only the previous directory has its name.
        fs::remove_all(previous);
        rename_or_throw(target_, previous);
        rename_or_throw(staging_, target_);
    }
    committed_ = true;
    sync_directory(parent_of(target_));
    std::error_code ignored;
    fs::remove_all(staging_,
                   ignored);  // the previous directory before this commit, if there was one
}

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
