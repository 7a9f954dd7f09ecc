#include "cli/output_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"

namespace mantissa::cli {

namespace {

namespace fs = std::filesystem;

/// A device or a pipe: it has no content that could be replaced whole, and must not be renamed over.
bool is_stream(const fs::path& path) {
    std::error_code ignored;
    if (path == "-") return true;  // standard output
    return fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
}

void require_writable(const std::string& option, const fs::path& path) {
    std::error_code ignored;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (path.empty() || fs::is_directory(path, ignored) || !path.has_filename())
        throw UserError(fmt::format("{} '{}': that is no file; name one", option, path.string()));
    if (!fs::is_directory(folder, ignored))
        throw UserError(fmt::format("{} {}: there is no folder {}", option, path.string(), folder.string()));
    if (is_stream(path)) return;
    try {
        const AtomicFile probe(path);  // is removed again, since nothing commits it
    } catch (const UserError& error) {
        throw UserError(fmt::format("{} {}", option, error.what()));
    }
}

}  // namespace

CLI::Option* add_output_file(CLI::App& command, const std::string& name, std::string& path,
                             const std::string& what) {
    return command.add_option(name, path, what)->type_name("FILE")->check([name](const std::string& given) {
        require_writable(name, given);
        return std::string();
    });
}

void write_output(const std::string& path, const std::string& text) {
    if (path.empty()) return;
    if (is_stream(path)) {
        std::fflush(stdout);  // what was printed comes first where both are one
        std::ofstream stream(path == "-" ? "/dev/stdout" : path);
        stream << text << std::flush;
        if (!stream) throw UserError(fmt::format("{}: cannot be written", path));
        return;
    }
    AtomicFile file(path);
    file.write(text);
    file.commit();
}

}  // namespace mantissa::cli
