#include "mantissa/codegen/kernel_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>
#include <vector>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/version.h"
#include "mantissa/codegen/compiler.h"

namespace mantissa::inline v0::codegen {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view first_words = "mantissa kernel 1 ";
constexpr std::size_t kept_makers = 4;

std::string checksum_of_text(std::string_view text) {
    return checksum_text(checksum_of(std::as_bytes(std::span(text))));
}

/// The next of a header's words, which are apart by one blank each.
std::string_view next_word(std::string_view& text) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
}

std::optional<std::size_t> number_in(std::string_view word) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || end != word.data() + word.size()) return {};
    return number;
}

/// A line of first words, checksum of the rest and three sizes; then key, IR and assembly.
std::string written(std::string_view key, const Listing& kernel) {
    std::string content(key);
    content += kernel.ir;
    content += kernel.assembly;
    return fmt::format("{}{} {} {} {}\n", first_words, checksum_of_text(content), key.size(),
                       kernel.ir.size(), kernel.assembly.size()) +
           content;
}

std::optional<Listing> read(std::string_view file, std::string_view key) {
    std::string_view header = file.substr(0, file.find('\n'));
    std::string_view content = file.substr(std::min(file.size(), header.size() + 1));
    if (!header.starts_with(first_words)) return {};
    header.remove_prefix(first_words.size());
    const std::string_view checksum = next_word(header);
    const auto of_key = number_in(next_word(header)), of_ir = number_in(next_word(header)),
               of_assembly = number_in(next_word(header));
    if (!of_key || !of_ir || !of_assembly) return {};
    const std::size_t all = content.size();
    if (*of_key > all || *of_ir > all || *of_assembly > all || *of_key + *of_ir + *of_assembly != all)
        return {};
    if (checksum_of_text(content) != checksum || content.substr(0, *of_key) != key) return {};
    return Listing{.ir = std::string(content.substr(*of_key, *of_ir)),
                   .assembly = std::string(content.substr(*of_key + *of_ir))};
}

std::string maker_of_this_program() {
    const std::string build = build_id();
    return build.empty() ? "" : fmt::format("{} {}", build, Compiler::version());
}

}  // namespace

KernelFolder::KernelFolder(fs::path folder, std::string maker) : maker_(std::move(maker)) {
    if (!folder.empty() && !maker_.empty()) folder_ = folder / checksum_of_text(maker_);
}

KernelFolder::KernelFolder(fs::path folder) : KernelFolder(std::move(folder), maker_of_this_program()) {}

fs::path KernelFolder::file_of(const std::string& key) const {
    return folder_ / (checksum_of_text(key) + ".kernel");
}

std::optional<Listing> KernelFolder::find(const std::string& key) const {
    if (is_off()) return {};
    try {
        std::error_code ignored;
        const fs::path file = file_of(key);
        if (!fs::is_regular_file(file, ignored)) return {};
        return read(read_file(file), maker_ + "\n" + key);
    } catch (const UserError&) {
        return {};  // it is gone, or may not be read
    }
}

void KernelFolder::keep(const std::string& key, const Listing& kernel) const {
    if (is_off()) return;
    try {
        std::error_code error;
        if (fs::create_directories(folder_, error)) drop_other_makers();
        AtomicFile file(file_of(key));
        file.write(written(maker_ + "\n" + key, kernel));
        file.commit_unsynced();
    } catch (const UserError&) {
        // The next run makes it again.
    }
}

void KernelFolder::drop_other_makers() const {
    std::error_code error;
    std::vector<std::pair<fs::file_time_type, fs::path>> makers;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.parent_path(), error))
        if (entry.is_directory(error)) makers.emplace_back(entry.last_write_time(error), entry.path());
    std::ranges::sort(makers, std::greater{});
    for (std::size_t i = kept_makers; i < makers.size(); ++i)
        if (makers[i].second != folder_) fs::remove_all(makers[i].second, error);
}

fs::path folder_of_kernels() {
    const fs::path cache = cache_folder();
    return cache.empty() ? cache : cache / "kernels";
}

}  // namespace mantissa::codegen
