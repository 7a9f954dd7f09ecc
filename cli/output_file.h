// Files that a command writes when its work is done. That they can be written is seen before it begins.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

namespace mantissa::cli {

/// Throws UserError, beginning with the option, if there is no such folder, or nothing can be written there.
void require_writable(const std::string& option, const std::filesystem::path& path);

/// Whether the words hold `--json -` or `--log -`.
bool asks_for_file_on_standard_output(std::span<const std::string> words);

/// Changes where output goes: from now on standard output gets what is written to "-" alone; what is printed
/// for people goes to standard error.
void keep_standard_output_for_files();

/// A file that is kept so, to be written to bit by bit. Throws UserError if the system has no more files to
/// open.
std::FILE* open_kept_standard_output();

/// Writes the file, whole or not at all; into what is no file, as /dev/stdout or a pipe, straight. Nothing
/// for an empty path.
void write_output(const std::string& path, const std::string& text);

}  // namespace mantissa::cli
