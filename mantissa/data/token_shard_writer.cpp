#include "mantissa/data/token_shard_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/token_file.h"

namespace mantissa::inline v0 {

namespace {

void write_header(AtomicFile& file, std::uint64_t count) {
    std::array<std::int32_t, llmc::header_bytes / 4> header{};
    header[0] = llmc::magic;
    header[1] = llmc::version;
    header[2] = static_cast<std::int32_t>(count);
    const auto bytes = std::as_bytes(std::span(header));
    file.written() == 0 ? file.write(bytes) : file.overwrite(0, bytes);
}

void write_tokens(AtomicFile& file, std::span<const std::int32_t> tokens, const std::filesystem::path& path) {
    std::vector<std::uint16_t> narrow(std::min<std::size_t>(tokens.size(), 1 << 20));
    while (!tokens.empty()) {
        const std::size_t count = std::min(tokens.size(), narrow.size());
        for (std::size_t i = 0; i < count; ++i) {
            if (tokens[i] < 0 || tokens[i] > 65'535)
                throw UserError(fmt::format("{}: token {} does not fit in the 16 bits of this format",
                                            path.string(), tokens[i]));
            narrow[i] = static_cast<std::uint16_t>(tokens[i]);
        }
        file.write(std::as_bytes(std::span(narrow).first(count)));
        tokens = tokens.subspan(count);
    }
}

}  // namespace

TokenShardWriter::TokenShardWriter(std::filesystem::path stem, const Options& options)
    : stem_(std::move(stem)), options_(options) {
    check(options.tokens_per_shard > 0 && options.tokens_per_shard < std::uint64_t{1} << 31,
          "a shard's count fits its header");
}

void TokenShardWriter::append(std::span<const std::int32_t> tokens) {
    while (!tokens.empty()) {
        if (!file_) open_shard();
        const std::size_t count =
            std::min<std::uint64_t>(tokens.size(), options_.tokens_per_shard - in_shard_);
        write_tokens(*file_, tokens.first(count), shards_.back());
        in_shard_ += count;
        tokens = tokens.subspan(count);
        if (in_shard_ == options_.tokens_per_shard) close_shard();
    }
}

std::vector<std::filesystem::path> TokenShardWriter::finish() {
    if (file_) close_shard();
    return std::exchange(shards_, {});
}

void TokenShardWriter::open_shard() {
    shards_.emplace_back(fmt::format("{}_{:06}.bin", stem_.string(), shards_.size()));
    file_.emplace(shards_.back());
    in_shard_ = 0;
    write_header(*file_, 0);
}

void TokenShardWriter::close_shard() {
    write_header(*file_, in_shard_);
    file_->commit();
    file_.reset();
}

void write_token_shard(const std::filesystem::path& path, std::span<const std::int32_t> tokens) {
    check(tokens.size() < std::size_t{1} << 31, "a shard's count fits its header");
    AtomicFile file(path, llmc::header_bytes + 2 * tokens.size());
    write_header(file, tokens.size());
    write_tokens(file, tokens, path);
    file.commit();
}

}  // namespace mantissa
