// Writing tokens as llm.c's shards, each appearing whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/base/atomic_file.h"

namespace mantissa::inline v0 {

/// Tokens as uint16 in files STEM_000000.bin, STEM_000001.bin...
class TokenShardWriter {
  public:
    struct Options {
        std::uint64_t tokens_per_shard = 100'000'000;  ///< below 2^31: the header counts in int32
    };

    TokenShardWriter(std::filesystem::path stem, const Options& options);

    /// Throws UserError for a token above 65,535, and when the disk is full (with the bytes free).
    void append(std::span<const std::int32_t> tokens);
    /// Completes the last shard and names all. Without it the last shard does not appear.
    std::vector<std::filesystem::path> finish();

  private:
    void open_shard();
    void close_shard();

    std::filesystem::path stem_;
    Options options_;
    std::vector<std::filesystem::path> shards_;
    std::optional<AtomicFile> file_;
    std::uint64_t in_shard_ = 0;
};

/// All tokens in one shard of this name.
void write_token_shard(const std::filesystem::path& path, std::span<const std::int32_t> tokens);

}  // namespace mantissa
