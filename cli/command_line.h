// Checks of a command line before any work, beyond the options' own checks.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/error.h"

namespace CLI {
class App;
}

namespace mantissa::cli {

/// Opens missing standard streams as /dev/null: otherwise the next opened file would become one of them, and
/// get the printed text.
void open_standard_streams();

bool is_utf8(std::string_view text);

/// The parts of a text between separators; one empty part for an empty text.
std::vector<std::string> split_at(char separator, std::string_view text);

/// An error that names the first word, or else the working folder, that is not UTF-8 and could not be written
/// into a checkpoint. A prompt may have any bytes. Empty if all are UTF-8.
std::string not_utf8(std::span<const std::string> words);

/// The options of a command, including its groups.
std::vector<std::string> options_of(const CLI::App& command);

/// "; did you mean X?" with the name most like the word; empty if none is similar.
std::string did_you_mean(const std::vector<std::string>& names, const std::string& word);

/// Joins all options into one section where there are few, for easier reading.
void join_short_sections(CLI::App& app);

/// Throws UserError with the option before the reason: the command line is wrong, not a file.
[[noreturn]] void refuse_value(std::string_view option, std::string_view reason);

/// The value of an option, parsed by `read`; an error of `read` gets the option's name.
template <class Read>
auto in_option(std::string_view option, const Read& read) {
    try {
        return read();
    } catch (const UserError& error) {
        refuse_value(option, error.what());
    }
}

/// A file named by an option.
struct NamedFile {
    std::string option;
    std::filesystem::path path;
};

/// Throws UserError, beginning with the option, if an output is also an input or another output, or is in one
/// of the folders of checkpoints. Empty paths and "-" are ignored.
void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs,
                   const std::vector<std::filesystem::path>& checkpoints = {});

/// Whether a path names the same file or folder as another, or one in that folder.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& place);

/// Throws UserError, beginning with the option, if an output is in an input folder, which is read with all
/// its contents: the next run would read the output, too. An input that is no folder, empty paths and "-" are
/// ignored.
void require_outside(const NamedFile& input, const char* how_it_is_read,
                     const std::vector<NamedFile>& outputs);

/// The place of the checkpoint that `option` names, with links resolved, so that it is replaced there and
/// locked under one name. Throws UserError for a broken link.
std::string place_of_checkpoint(const std::string& option, const std::string& path);

}  // namespace mantissa::cli
