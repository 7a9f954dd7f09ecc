// A text file as training data: mapped, so that it may exceed memory, and cut into parts that can be
// tokenized separately.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/base/file.h"
#include "mantissa/data/tokenizer_split.h"

namespace mantissa::inline v0 {

/// The fault of a text in a few words: "empty", "UTF-16", "another encoding than UTF-8, such as Latin-1", "no
/// text"; empty: none. Checks as require_text does.
std::string fault_of_text(std::string_view text);

/// Throws UserError that begins with `name` if the text is empty or binary: its first MiB has a zero byte, or
/// more than a hundredth of it is not UTF-8.
void require_text(std::string_view text, const std::string& name);

/// Whether the text is UTF-8 without control characters except white space; its end may cut a character.
bool is_plain_text(std::string_view text);

/// The lines of a file: they end in LF or CR LF; the last may lack its end; a byte order mark at the start is
/// removed.
std::vector<std::string_view> lines_of(std::string_view text);

/// Whether the text at this path can be read only once: standard input, named "-", a pipe or a device.
bool is_read_once(const std::filesystem::path& path);

class TextFile {
  public:
    /// Maps a file; reads a text that can be read only once to its end. Throws UserError as MappedFile and
    /// require_text do.
    explicit TextFile(const std::filesystem::path& path);

    std::string_view text() const { return file_ ? file_->text() : read_; }

  private:
    std::optional<MappedFile> file_;
    std::string read_;
};

/// Parts of about `part_bytes`, cut at safe places, so that the parts' tokens in order equal the whole
/// text's. The cuts follow from the text alone.
std::vector<std::string_view> cut_text(std::string_view text, std::size_t part_bytes, const SafeCuts& cuts);

}  // namespace mantissa
