#include "mantissa/data/text_file.h"

#include <fmt/format.h>

#include <fstream>

#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/data/tokenizer_split.h"
#include "mantissa/data/unicode.h"

namespace mantissa::inline v0 {

namespace {

/// The part of a text that is checked.
std::string_view beginning_of(std::string_view text) { return text.substr(0, std::size_t{1} << 20); }

bool is_utf16(std::string_view text) { return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"); }

struct Looks {
    std::size_t invalid = 0;  ///< bytes of invalid UTF-8
    bool has_controls = false;

    explicit Looks(std::string_view text) {
        constexpr std::string_view usual = "\t\n\v\f\r\x1a\x1b";
        for (std::size_t at = 0; at < text.size();) {
            const Utf8Step step = decode_utf8(text, at);
            if (step.code_point == Utf8Step::invalid) invalid += step.length;
            if (step.code_point < ' ' && usual.find(text[at]) == usual.npos) has_controls = true;
            at += step.length;
        }
    }
    /// Latin-1 text has more than a hundredth of non-ASCII letters; stray bytes are fewer.
    bool is_utf8(std::string_view text) const { return invalid * 100 <= text.size(); }
};

}  // namespace

std::string fault_of_text(std::string_view text) {
    if (text.empty()) return "empty";
    if (is_utf16(text)) return "UTF-16";
    const std::string_view looked_at = beginning_of(text);
    if (looked_at.find('\0') != looked_at.npos) return "no text";
    const Looks looks(looked_at);
    if (looks.is_utf8(looked_at)) return "";
    return looks.has_controls ? "no text" : "another encoding than UTF-8, such as Latin-1";
}

void require_text(std::string_view text, const std::string& name) {
    if (text.empty()) throw UserError(fmt::format("{}: is empty; expected text", name));
    if (is_utf16(text))
        throw UserError(fmt::format(
            "{}: is UTF-16; expected text in UTF-8, which iconv -f UTF-16 -t UTF-8 makes of it", name));
    const std::string_view looked_at = beginning_of(text);
    if (const std::size_t zero = looked_at.find('\0'); zero != looked_at.npos)
        throw UserError(fmt::format("{}: is binary (byte {} is zero); expected text in UTF-8", name, zero));
    if (const Looks looks(looked_at); !looks.is_utf8(looked_at))
        throw UserError(
            fmt::format("{}: is binary or in another encoding ({} of its first {} bytes are not UTF-8); "
                        "expected text in UTF-8, which iconv -f LATIN1 -t UTF-8 makes of Latin-1",
                        name, looks.invalid, looked_at.size()));
}

bool is_plain_text(std::string_view text) {
    constexpr std::string_view spaces = "\t\n\v\f\r";
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = decode_utf8(text, at);
        if (step.code_point == Utf8Step::invalid) return step.cut_short;
        if (step.code_point < ' ' && spaces.find(text[at]) == spaces.npos) return false;
        at += step.length;
    }
    return true;
}

std::vector<std::string_view> lines_of(std::string_view text) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines.push_back(line);
    }
    return lines;
}

bool is_read_once(const std::filesystem::path& path) {
    std::error_code ignored;
    return path == "-" ||
           (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored) &&
            !std::filesystem::is_directory(path, ignored));
}

namespace {

/// Reads an input of unknown length; stops early if it is not text, or memory does not suffice.
std::string read_to_its_end(const std::filesystem::path& path, const std::string& name) {
    constexpr std::size_t at_once = std::size_t{1} << 20;
    const auto most = static_cast<std::size_t>(available_memory() / 2);
    std::ifstream stream(path == "-" ? "/dev/stdin" : path, std::ios::binary);
    std::string text;
    while (stream) {
        const std::size_t before = text.size();
        text.resize(before + at_once);
        stream.read(text.data() + before, at_once);
        text.resize(before + static_cast<std::size_t>(stream.gcount()));
        if (before == 0) require_text(text, name);
        if (text.size() > most)
            throw UserError(
                fmt::format("{}: has more than {} bytes, half of the memory that is available; write "
                            "it to a file and name that",
                            name, most));
    }
    if (stream.bad()) throw UserError(fmt::format("{}: cannot be read", name));
    return text;
}

}  // namespace

TextFile::TextFile(const std::filesystem::path& path) {
    const std::string name = path == "-" ? "standard input" : path.string();
    if (is_read_once(path)) {
        read_ = read_to_its_end(path, name);
    } else {
        file_.emplace(path);
        require_text(file_->text(), name);
    }
}

std::vector<std::string_view> cut_text(std::string_view text, std::size_t part_bytes, const SafeCuts& cuts) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end =
            text.size() - begin > part_bytes ? cuts.next(text, begin + part_bytes) : text.size();
        parts.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return parts;
}

}  // namespace mantissa
