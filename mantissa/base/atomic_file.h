// Writing files and directories that appear whole or not at all: written under a temporary name beside the
// target, synced to the disk, then renamed. A crash, a kill or a full disk at any moment leaves the old
// content. Also a file that one process at a time may hold, for places that only one may write to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace mantissa::inline v0 {

/// Throws UserError, naming the bytes needed and the bytes free, unless the file system that holds `path` (or
/// its nearest existing parent) has `bytes` free for this user. `purpose` begins the message.
void require_free_space(const std::filesystem::path& path, std::uint64_t bytes, std::string_view purpose);

/// Throws UserError, naming it, if the folder that `path` is to lie in is not there. Folders are never made
/// all the way: a slip in a path would put files in a wrong place.
void require_folder_for(const std::filesystem::path& path);

/// Makes a folder, if there is none. Throws UserError if the one that it is to lie in is not there.
void make_folder(const std::filesystem::path& folder);

/// One file, written to TARGET.tmp.PID and renamed to TARGET by commit(). Every write is checked; throws
/// UserError that names the file and the reason, and for a full disk the bytes needed and free. Without
/// commit() the temporary file is removed again.
class AtomicFile {
  public:
    /// `size` is the final size of the file where it is known: the space is checked and reserved first, and
    /// commit() holds the writer to it. 0: not known.
    explicit AtomicFile(std::filesystem::path target, std::uint64_t size = 0);
    ~AtomicFile();
    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    /// Writes over bytes that were already written, for a header that is known only at the end.
    void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);

    std::uint64_t written() const { return written_; }

    /// Syncs, closes, renames, syncs the parent directory. The target is the new file when this returns, and
    /// unchanged when this throws.
    void commit();
    /// Closes and renames, and does not wait for the disk: for a file that has a checksum and can be made
    /// again.
    void commit_unsynced();

  private:
    void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
    [[noreturn]] void fail(const char* what, int error) const;

    std::filesystem::path target_, temporary_;
    std::uint64_t size_ = 0, written_ = 0;
    std::uint64_t reached_ = 0;  // where the bytes to be written end
    int fd_ = -1;
};

/// Writes one file so, of a size that is known.
void write_whole(const std::filesystem::path& target, std::string_view text);

/// A directory of files, filled at staging() and put in the target's place by commit(). The old target
/// is kept beside it as TARGET.previous, replacing an older one of that name. At every moment one of the two
/// exists.
class AtomicDirectory {
  public:
    /// Creates the staging directory TARGET.tmp.PID, after removing the leftovers of killed processes and
    /// checking that `bytes` are free. Throws UserError if the folder that holds the target is not there.
    explicit AtomicDirectory(std::filesystem::path target, std::uint64_t bytes = 0);
    ~AtomicDirectory();
    AtomicDirectory(const AtomicDirectory&) = delete;
    AtomicDirectory& operator=(const AtomicDirectory&) = delete;

    const std::filesystem::path& staging() const { return staging_; }

    /// The files in staging() must have been synced (AtomicFile does).
    void commit();

    static std::filesystem::path previous_of(const std::filesystem::path& target);
    /// The directory whose previous_of this is, by its name; empty for any other name.
    static std::filesystem::path target_of(const std::filesystem::path& previous);
    /// Renames `target` to TARGET.aside, or TARGET.aside-2, -3 ..., the first that is free, so that the next
    /// commit() leaves TARGET.previous as it is. The new name; empty if nothing is there.
    static std::filesystem::path set_aside(const std::filesystem::path& target);
    /// The LockFile by which processes that put directories there keep one another out.
    static std::filesystem::path lock_of(const std::filesystem::path& target);

  private:
    std::filesystem::path target_, staging_;
    bool committed_ = false;
};

/// Held from construction to destruction, or until the process ends in whatever way: the system lets go of
/// it. The file is removed at the end; one that a killed process left behind is held by nobody.
class LockFile {
  public:
    /// Creates the file's folder, too. Throws UserError that begins with `place` if another process holds the
    /// file, and if it cannot be created. File systems that know no locks hold nobody back.
    LockFile(std::filesystem::path file, std::string_view place);
    ~LockFile();
    LockFile(const LockFile&) = delete;
    LockFile& operator=(const LockFile&) = delete;

  private:
    std::filesystem::path file_;
    int fd_ = -1;
};

}  // namespace mantissa
