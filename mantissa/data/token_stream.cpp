#include "mantissa/data/token_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

TokenStream::TokenStream(const std::vector<std::filesystem::path>& files, const Options& options) {
    if (files.empty()) throw UserError("no token files were given");
    for (const auto& path : files) {
        const TokenFile& file = files_.emplace_back(path, options.format);
        if (options.vocabulary > 0) file.check_vocabulary(options.vocabulary);
        starts_.push_back(size_);
        size_ += file.size();
    }
    source_ = name_of(files);
}

TokenStream::TokenStream(std::vector<std::int32_t> tokens, std::string source)
    : memory_(std::move(tokens)), source_(std::move(source)), size_(memory_.size()) {}

void TokenStream::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
    check(begin <= size_ && out.size() <= size_ - begin, "tokens are read within their stream");
    if (files_.empty()) {
        std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
        return;
    }
    auto index =
        static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) -
        1;
    while (!out.empty()) {
        const std::uint64_t within = begin - starts_[index];
        const std::size_t run = std::min<std::uint64_t>(out.size(), files_[index].size() - within);
        files_[index].copy(within, out.first(run));
        out = out.subspan(run);
        begin += run;
        ++index;
    }
}

std::string TokenStream::description() const {
    if (files_.empty()) return fmt::format("text, {} tokens", size_);
    std::set<std::string_view> formats;
    for (const TokenFile& file : files_) formats.insert(name_of(file.format()));
    return fmt::format("{} file{} ({}), {} tokens", files_.size(), files_.size() == 1 ? "" : "s",
                       fmt::join(formats, ", "), size_);
}

std::string name_of(const std::vector<std::filesystem::path>& files) {
    if (files.size() == 1) return files[0].string();
    if (files.size() <= 3) {
        std::string names = files[0].string();
        for (std::size_t i = 1; i < files.size(); ++i) names += ", " + files[i].string();
        return names;
    }
    const std::string folder = files[0].parent_path().string();
    return fmt::format("{} ({} files)", folder.empty() ? "." : folder, files.size());
}

TokenSplit split_for_validation(TokenRange range) {
    const std::uint64_t middle = range.end - range.size() / 10;
    return {.train = {range.begin, middle}, .validation = {middle, range.end}};
}

}  // namespace mantissa
