#include "cli/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

namespace fs = std::filesystem;

/// A device or a pipe: it cannot be replaced as a whole, and must not be renamed over.
bool is_stream(const fs::path& path) {
    std::error_code ignored;
    if (path == "-") return true;  // standard output
    return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
}

}  // namespace

void require_writable(const std::string& option, const fs::path& path) {
    std::error_code ignored;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (path.empty() || fs::is_directory(path, ignored) || !path.has_filename())
        throw UserError(fmt::format("{} '{}': that is no file; name one", option, path.string()));
    if (!fs::is_directory(folder, ignored))
        throw UserError(fmt::format("{} {}: there is no folder {}", option, path.string(), folder.string()));
    if (is_stream(path)) return;
    try {
        const AtomicFile probe(path);  // removed again, since nothing commits it
    } catch (const UserError& error) {
        throw UserError(fmt::format("{} {}", option, error.what()));
    }
}

namespace {

/// Standard output, if it is kept for files; else -1.
int kept_output = -1;

void write_to_kept_output(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t done = ::write(kept_output, text.data() + at, text.size() - at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            throw UserError(fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
        at += static_cast<std::size_t>(done);
    }
}

}  // namespace

bool asks_for_file_on_standard_output(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i)
        for (const std::string_view option : {"--json", "--log"})
            if (words[i] == fmt::format("{}=-", option) ||
                (i > 0 && words[i] == "-" && words[i - 1] == option))
                return true;
    return false;
}

void keep_standard_output_for_files() {
    std::fflush(stdout);
    kept_output = ::dup(STDOUT_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

std::FILE* open_kept_standard_output() {
    const int fd = ::dup(kept_output >= 0 ? kept_output : STDOUT_FILENO);
    std::FILE* const file = fd < 0 ? nullptr : ::fdopen(fd, "w");
    if (!file) throw UserError(fmt::format("standard output: cannot be written: {}", std::strerror(errno)));
    return file;
}

void write_output(const std::string& path, const std::string& text) {
    if (path.empty()) return;
    if (path == "-" && kept_output >= 0) return write_to_kept_output(text);
    if (is_stream(path)) {
        std::fflush(stdout);  // keeps the order where both are one stream
        std::ofstream stream(path == "-" ? "/dev/stdout" : path);
        stream << text << std::flush;
        if (!stream) throw UserError(fmt::format("{}: cannot be written", path));
        return;
    }
    write_whole(path, text);
}

}  // namespace mantissa::cli
