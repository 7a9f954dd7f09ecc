#include "cli/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <string_view>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/error.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/data/unicode.h"

namespace mantissa::cli {

namespace {

namespace fs = std::filesystem;

/// Replaces bytes that are not ASCII by \xNN.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return out;
}

bool is_same_file(const fs::path& a, const fs::path& b) {
    std::error_code ignored;
    if (fs::exists(a, ignored) && fs::exists(b, ignored)) return fs::equivalent(a, b, ignored);
    return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

bool is_file(const NamedFile& file) {
    std::error_code ignored;
    return !file.path.empty() && file.path != "-" &&
           (!fs::exists(file.path, ignored) || fs::is_regular_file(file.path, ignored));
}

/// Characters to add, remove or replace to turn one word into the other.
std::size_t edits_between(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

/// The name most like a word; empty if none is similar.
std::string max_like(const std::vector<std::string>& names, const std::string& word) {
    std::string best;
    const std::size_t size = word.size() - std::min(word.find_first_not_of('-'), word.size());
    std::size_t least = (size < 4 ? 1 : std::max<std::size_t>(2, size / 4)) + 1;
    for (const std::string& name : names)
        if (const std::size_t edits = edits_between(word, name); edits < least) least = edits, best = name;
    return best;
}

}  // namespace

void open_standard_streams() {
    for (int fd = 0; fd <= 2; ++fd)
        if (::fcntl(fd, F_GETFD) == -1) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = decode_utf8(text, at);
        if (step.code_point == Utf8Step::invalid) return false;
        at += step.length;
    }
    return true;
}

std::vector<std::string> split_at(char separator, std::string_view text) {
    std::vector<std::string> parts(1);
    for (const char c : text)
        if (c == separator)
            parts.emplace_back();
        else
            parts.back() += c;
    return parts;
}

std::string not_utf8(std::span<const std::string> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        // A prompt may have any bytes.
        if (word.starts_with("--prompt=") || (i > 0 && words[i - 1] == "--prompt")) continue;
        if (!is_utf8(word))
            return fmt::format(
                "'{}' is not UTF-8, and could not be written into a checkpoint or a report; rename what it "
                "names",
                escaped(word));
    }
    std::error_code error;
    const std::string folder = fs::current_path(error).string();
    return is_utf8(folder) ? ""
                           : fmt::format(
                                 "the name of this folder, '{}', is not UTF-8; rename it, or work in "
                                 "another",
                                 escaped(folder));
}

std::vector<std::string> options_of(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name());
    for (const CLI::App* group : command.get_subcommands({}))
        if (group->get_name().empty())
            for (const CLI::Option* option : group->get_options()) names.push_back(option->get_name());
    return names;
}

std::string did_you_mean(const std::vector<std::string>& names, const std::string& word) {
    const std::string like = max_like(names, word);
    return like.empty() ? "" : fmt::format("; did you mean {}?", like);
}

void refuse_value(std::string_view option, std::string_view reason) {
    throw UserError(reason.starts_with("--") ? std::string(reason) : fmt::format("{}: {}", option, reason));
}

void join_short_sections(CLI::App& app) {
    constexpr std::size_t many_options = 25;
    for (CLI::App* command : app.get_subcommands({})) {
        if (const std::vector<CLI::Option*> options = command->get_options(); options.size() < many_options)
            for (CLI::Option* option : options) option->group(command->get_help_ptr()->get_group());
        join_short_sections(*command);
    }
}

void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs,
                   const std::vector<fs::path>& checkpoints) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto& [option, path] = outputs[i];
        if (!is_file(outputs[i])) continue;
        for (const NamedFile& input : inputs)
            if (is_file(input) && is_same_file(path, input.path))
                throw UserError(
                    fmt::format("{} {}: that is what {} reads, and would be written over; name "
                                "another file",
                                option, path.string(), input.option));
        for (std::size_t j = 0; j < i; ++j)
            if (is_file(outputs[j]) && is_same_file(path, outputs[j].path))
                throw UserError(fmt::format("{} {}: {} writes there, too; name another file", option,
                                            path.string(), outputs[j].option));
        for (const fs::path& checkpoint : checkpoints)
            if (!checkpoint.empty() && is_same_file(fs::absolute(path).parent_path(), checkpoint))
                throw UserError(
                    fmt::format("{} {}: that folder is a checkpoint, which holds nothing else; "
                                "name another place",
                                option, path.string()));
    }
}

bool lies_in(const fs::path& path, const fs::path& place) {
    std::error_code none;
    const fs::path whole = fs::weakly_canonical(fs::absolute(place), none);
    const fs::path part = fs::weakly_canonical(fs::absolute(path), none);
    return std::ranges::mismatch(whole, part).in1 == whole.end();
}

void require_outside(const NamedFile& input, const char* how_it_is_read,
                     const std::vector<NamedFile>& outputs) {
    std::error_code none;
    const fs::path folder = fs::weakly_canonical(input.path, none);
    if (input.path.empty() || !fs::is_directory(folder, none)) return;
    for (const auto& [option, path] : outputs) {
        if (path.empty() || path == "-") continue;
        if (lies_in(path, folder))
            throw UserError(fmt::format("{} {}: lies in the folder of {}, {}; name another place", option,
                                        path.string(), input.option, how_it_is_read));
    }
}

std::string place_of_checkpoint(const std::string& option, const std::string& path) {
    std::error_code error;
    const fs::path name = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
    if (!fs::is_symlink(name, error)) return path;
    const fs::path place = fs::canonical(name, error);
    if (error)
        throw UserError(
            fmt::format("{} {}: is a link to {}, which is not there; make that folder, or name "
                        "another place",
                        option, path, fs::read_symlink(name, error).string()));
    return place.string();
}

}  // namespace mantissa::cli
