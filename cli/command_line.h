// Demands on a command line before anything is done, beyond what its options say of themselves.
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

/// The standard streams are there, if only as /dev/null: else the next file that is opened would be one of
/// them, and get what is printed.
void open_standard_streams();

bool is_utf8(std::string_view text);

/// The parts of a text between separators; one empty part of an empty text.
std::vector<std::string> split_at(char separator, std::string_view text);

/// A message that names the first word, or else the folder in which the program runs, that is not UTF-8. Such
/// a word could not be written into a checkpoint. A prompt may be any bytes. Empty if all are UTF-8.
std::string not_utf8(std::span<const std::string> words);

/// The options of a command, with those of its groups.
std::vector<std::string> options_of(const CLI::App& command);

/// "; did you mean X?" with the name that is most like the word; empty where none is like it.
std::string did_you_mean(const std::vector<std::string>& names, const std::string& word);

/// Makes one section of all where there are few options, which is easier to read.
void join_short_sections(CLI::App& app);

/// Throws UserError with the option before the reason: the command line is wrong, not what it names.
[[noreturn]] void refuse_value(std::string_view option, std::string_view reason);

/// The value of an option as `read` understands it; a UserError of `read` becomes that of refuse_value.
template <class Read>
auto in_option(std::string_view option, const Read& read) {
    try {
        return read();
    } catch (const UserError& error) {
        refuse_value(option, error.what());
    }
}

/// A file that an option names.
struct NamedFile {
    std::string option;
    std::filesystem::path path;
};

/// Throws UserError, beginning with the option, where an output is also an input or another output, or lies
/// in one of the folders that hold checkpoints. Empty paths and "-" count for nothing.
void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs,
                   const std::vector<std::filesystem::path>& checkpoints = {});

/// Whether a path names the same file or folder as another, or one in that folder.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& place);

/// Throws UserError, beginning with the option, where an output lies in the folder of an input, which is read
/// with all that it holds: the next start would read the output, too. An input that is no folder, empty paths
/// and "-" count for nothing.
void require_outside(const NamedFile& input, const char* how_it_is_read,
                     const std::vector<NamedFile>& outputs);

/// Where a checkpoint lies that `option` names, links followed, so that it is replaced there and locked by
/// one name. Throws UserError for a link that leads nowhere.
std::string place_of_checkpoint(const std::string& option, const std::string& path);

}  // namespace mantissa::cli
