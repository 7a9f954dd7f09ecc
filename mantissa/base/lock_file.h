// A file that one process at a time may hold, for places that only one may write to.
#pragma once

#include <filesystem>
#include <string_view>

namespace mantissa::inline v0 {

/// Held from construction to destruction, or until the process ends in any way: the system lets go of it. The
/// file is removed at the end; nobody holds a file that a killed process left behind.
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
