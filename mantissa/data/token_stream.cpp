#include "mantissa/data/token_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/data/text_files.h"
#include "mantissa/data/token_file.h"

namespace mantissa::inline v0 {

struct TokenStream::Parts {
    /// Tokens that are consecutive in the stream and in the files.
    struct Piece {
        std::uint64_t begin = 0, in_files = 0;
    };

    std::vector<TokenFile> files = {};       ///< none: in memory
    std::vector<std::uint64_t> starts = {};  ///< of each file
    std::vector<Piece> pieces = {{}};
    std::vector<std::int32_t> memory = {};
    std::string source = {};

    /// As TokenStream::copy, in the order of the files.
    void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
};

TokenStream::TokenStream(const std::vector<std::filesystem::path>& files, const Options& options)
    : parts_(new Parts) {
    if (files.empty()) throw UserError("no token files were given");
    for (const auto& path : files) {
        const TokenFile& file = parts_->files.emplace_back(path, options.format);
        if (options.vocabulary > 0) file.check_vocabulary(options.vocabulary);
        parts_->starts.push_back(size_);
        size_ += file.size();
    }
    parts_->source = name_of(files);
}

TokenStream::TokenStream(std::vector<std::int32_t> tokens, std::string source,
                         std::vector<std::uint64_t> starts)
    : parts_(
          new Parts{.starts = std::move(starts), .memory = std::move(tokens), .source = std::move(source)}),
      size_(parts_->memory.size()) {}

TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

std::vector<TokenRange> TokenStream::files() const {
    std::vector<TokenRange> ranges;
    for (std::size_t i = 0; i < parts_->starts.size(); ++i)
        ranges.push_back({parts_->starts[i], i + 1 < parts_->starts.size() ? parts_->starts[i + 1] : size_});
    return ranges;
}

void TokenStream::move_to_end(std::span<const TokenRange> ranges) {
    std::uint64_t size = 0, done = 0;
    parts_->pieces.clear();
    const auto add = [&](TokenRange range) {
        if (range.size() == 0) return;
        parts_->pieces.push_back({size, range.begin});
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
    auto piece = std::ranges::upper_bound(parts_->pieces, begin, {}, &Parts::Piece::begin);
    while (!out.empty()) {
        const std::uint64_t end = piece == parts_->pieces.end() ? size_ : piece->begin;
        const Parts::Piece& at = *std::prev(piece);
        const std::size_t run = std::min<std::uint64_t>(out.size(), end - begin);
        parts_->copy(at.in_files + (begin - at.begin), out.first(run));
        out = out.subspan(run);
        begin += run;
        ++piece;
    }
}

void TokenStream::Parts::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
    if (files.empty()) {
        std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
        return;
    }
    auto index =
        static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    while (!out.empty()) {
        const std::uint64_t within = begin - starts[index];
        const std::size_t run = std::min<std::uint64_t>(out.size(), files[index].size() - within);
        files[index].copy(within, out.first(run));
        out = out.subspan(run);
        begin += run;
        ++index;
    }
}

const std::string& TokenStream::source() const { return parts_->source; }

std::string TokenStream::description() const {
    if (parts_->files.empty()) return fmt::format("text, {} tokens", size_);
    std::set<std::string_view> formats;
    for (const TokenFile& file : parts_->files) formats.insert(name_of(file.format()));
    return fmt::format("{} file{} ({}), {} tokens", parts_->files.size(),
                       parts_->files.size() == 1 ? "" : "s", fmt::join(formats, ", "), size_);
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
