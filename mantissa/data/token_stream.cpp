#include "mantissa/data/token_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/data/file_names.h"
#include "mantissa/data/token_file.h"

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

TokenStream::TokenStream(std::vector<std::int32_t> tokens, std::string source,
                         std::vector<std::uint64_t> starts)
    : starts_(std::move(starts)),
      memory_(std::move(tokens)),
      source_(std::move(source)),
      size_(memory_.size()) {}

TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

std::vector<TokenRange> TokenStream::files() const {
    std::vector<TokenRange> ranges;
    for (std::size_t i = 0; i < starts_.size(); ++i)
        ranges.push_back({starts_[i], i + 1 < starts_.size() ? starts_[i + 1] : size_});
    return ranges;
}

void TokenStream::move_to_end(std::span<const TokenRange> ranges) {
    std::uint64_t size = 0, done = 0;
    pieces_.clear();
    const auto add = [&](TokenRange range) {
        if (range.size() == 0) return;
        pieces_.push_back({size, range.begin});
        size += range.size();
    };
    for (const TokenRange& range : ranges) {
        add({done, range.begin});
        done = range.end;
    }
    add({done, size_});
    for (const TokenRange& range : ranges) add(range);
    check(size == size_, "ranges that are moved ascend and lie apart");
}

void TokenStream::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
    check(begin <= size_ && out.size() <= size_ - begin, "tokens are read within their stream");
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &Piece::begin);
    while (!out.empty()) {
        const std::uint64_t end = piece == pieces_.end() ? size_ : piece->begin;
        const Piece& at = *std::prev(piece);
        const std::size_t run = std::min<std::uint64_t>(out.size(), end - begin);
        copy_of_files(at.in_files + (begin - at.begin), out.first(run));
        out = out.subspan(run);
        begin += run;
        ++piece;
    }
}

void TokenStream::copy_of_files(std::uint64_t begin, std::span<std::int32_t> out) const {
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

TokenSplit split_for_validation(TokenRange range) {
    const std::uint64_t middle = range.end - range.size() / 10;
    return {.train = {range.begin, middle}, .validation = {middle, range.end}};
}

TokenSplit split_each_file(TokenStream& stream) {
    std::vector<TokenRange> tails;
    std::uint64_t kept = 0;
    for (const TokenRange& file : stream.files()) {
        tails.push_back(split_for_validation(file).validation);
        kept += tails.back().size();
    }
    stream.move_to_end(tails);
    return {.train = {0, stream.size() - kept}, .validation = {stream.size() - kept, stream.size()}};
}

}  // namespace mantissa
