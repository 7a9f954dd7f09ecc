// A text file as training data sees it: mapped, so that it may be larger than memory, and cut into parts that
// can be tokenized each by itself.
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

/// The fault of a text, in few words: "empty", "UTF-16", "another encoding than UTF-8, such as Latin-1", "no
/// text"; empty: none. It looks as require_text does.
std::string fault_of_text(std::string_view text);

/// Throws UserError that begins with `name` if the text is empty or binary: if its first MiB holds a zero
/// byte, or is for more than a hundredth not UTF-8.
void require_text(std::string_view text, const std::string& name);

/// Whether the text is UTF-8 throughout, but for a character that its end cuts, and holds no control
/// characters but white space.
bool is_plain_text(std::string_view text);

/// The lines of a file that says one thing a line: they end in LF or CR LF, the last one may end without, and
/// a byte order mark before the first is none of it.
std::vector<std::string_view> lines_of(std::string_view text);

/// Whether the text at this path can be read but once: standard input, for which "-" stands, a pipe or a
/// device.
bool is_read_once(const std::filesystem::path& path);

class TextFile {
  public:
    /// A file, or what is_read_once, which is read to its end. Throws UserError as MappedFile and
    /// require_text do.
    explicit TextFile(const std::filesystem::path& path);

    std::string_view text() const { return file_ ? file_->text() : read_; }

  private:
    std::optional<MappedFile> file_;
    std::string read_;
};

/// The text in parts of about `part_bytes`, cut where it is safe. So the
/// tokens of the parts, one after the other, are those of the whole. The cuts follow from the text alone.
std::vector<std::string_view> cut_text(std::string_view text, std::size_t part_bytes, const SafeCuts& cuts);

}  // namespace mantissa
