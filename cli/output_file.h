// Files that a command writes after its work. They are checked to be writable before it begins.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

namespace mantissa::cli {

/// Throws UserError, beginning with the option, if the folder is missing or not writable.
void require_writable(const std::string& option, const std::filesystem::path& path);

/// Whether the words hold `--json -` or `--log -`.
bool asks_for_file_on_standard_output(std::span<const std::string> words);

/// Keeps standard output for files named "-" from now on; text for people goes to standard error.
void keep_standard_output_for_files();

/// The kept standard output, for gradual writing. Throws UserError if the system has no free file
/// descriptors.
std::FILE* open_kept_standard_output();

/// Writes the file whole or not at all; a pipe or device, as /dev/stdout, is written directly. Does nothing
/// for an empty path.
void write_output(const std::string& path, const std::string& text);

}  // namespace mantissa::cli
