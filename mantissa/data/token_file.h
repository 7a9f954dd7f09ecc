// Files of token numbers: reads and checks one file; writes shards in llm.c's format, each whole or not at
// all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/file.h"

namespace mantissa::inline v0 {

enum class TokenFormat : std::uint8_t {
    detect,  ///< by the first bytes; raw if no format matches
    llmc,    ///< header of 256 int32 (magic, version, count), then uint16, or uint32 with Llama 3's magic
    raw,     ///< nanoGPT's: uint16 and nothing else
    npy      ///< one-dimensional array of integers
};

/// "llmc"..., as in the option.
std::string_view name_of(TokenFormat format);
/// The format of that name. Throws UserError, naming the formats, for another name.
TokenFormat token_format(std::string_view name);

namespace llmc {
inline constexpr std::int32_t magic = 20240520, version = 1;                // GPT-2: uint16 tokens
inline constexpr std::int32_t magic_uint32 = 20240801, version_uint32 = 7;  // Llama 3: uint32 tokens
inline constexpr std::size_t header_bytes = 1024;
}  // namespace llmc

/// Token numbers lie in 0 ... 2^31 - 1. Everything here throws UserError that names the file.
class TokenFile {
  public:
    /// Checks magic numbers, version, length, and the numbers' range where their type could exceed it. With
    /// `detect`, text is refused.
    explicit TokenFile(const std::filesystem::path& path, TokenFormat format = TokenFormat::detect);

    const std::filesystem::path& path() const { return path_; }
    TokenFormat format() const { return format_; }  ///< never detect
    std::uint64_t size() const { return size_; }

    /// Tokens begin ... begin + out.size() - 1.
    void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
    /// Reads the whole file; throws UserError if a token is not below `vocabulary`.
    void check_vocabulary(std::int64_t vocabulary) const;

  private:
    enum class Element : std::uint8_t { u8, u16, u32, i32, i64 };

    void open_llmc();
    void open_raw();
    void open_npy();
    void require_no_text() const;
    /// At most so many first bytes.
    std::vector<std::byte> head(std::size_t bytes) const;
    /// Calls `visit` with the position and the number of every token of the range.
    template <class Visit>
    void visit(std::uint64_t begin, std::uint64_t count, Visit visit) const;

    std::filesystem::path path_;
    OpenFile file_;
    TokenFormat format_ = TokenFormat::raw;
    Element element_ = Element::u16;
    std::uint64_t data_ = 0;  // position of the tokens in the file
    std::uint64_t size_ = 0;
};

/// Tokens as uint16 in files STEM_000000.bin, STEM_000001.bin...
class TokenShardWriter {
  public:
    struct Options {
        std::uint64_t tokens_per_shard = 100'000'000;  ///< below 2^31: the header counts in int32
    };

    TokenShardWriter(std::filesystem::path stem, const Options& options);

    /// Throws UserError for a token above 65,535, and when the disk is full (with the bytes free).
    void append(std::span<const std::int32_t> tokens);
    /// Completes the last shard and returns all names. Without this call the last shard does not appear.
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
