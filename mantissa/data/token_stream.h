// Several token files, or tokens in memory, as one stream, and its part for validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

enum class TokenFormat : std::uint8_t;

/// Positions begin ... end - 1 of a stream.
struct TokenRange {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t size() const { return end - begin; }
    bool operator==(const TokenRange&) const = default;
};

class TokenStream {
  public:
    struct Options {
        TokenFormat format = {};  ///< token_file.h; detected by default
        /// If positive, every token of every file is read and must be below it.
        std::int64_t vocabulary = 0;
    };

    /// The files one after another, all checked now. Throws UserError that names the file.
    TokenStream(const std::vector<std::filesystem::path>& files, const Options& options);
    /// Tokens of an encoded text; `source` names it; `starts`: beginnings of its files.
    explicit TokenStream(std::vector<std::int32_t> tokens, std::string source = "the text",
                         std::vector<std::uint64_t> starts = {0});

    ~TokenStream();
    TokenStream(TokenStream&&) noexcept;
    TokenStream& operator=(TokenStream&&) noexcept;

    std::uint64_t size() const { return size_; }
    TokenRange all() const { return {0, size_}; }
    /// Tokens begin ... begin + out.size() - 1; the range may span several files.
    void copy(std::uint64_t begin, std::span<std::int32_t> out) const;
    /// The tokens of each file, in positions before move_to_end.
    std::vector<TokenRange> files() const;
    /// Moves ranges, ascending and disjoint, to the end of the stream.
    void move_to_end(std::span<const TokenRange> ranges);
    /// "a.txt", "DIR (13 files)": for errors.
    const std::string& source() const;
    /// "2 files (llmc, raw), 338025 tokens", for the log.
    std::string description() const;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
    std::uint64_t size_ = 0;
};

struct TokenSplit {
    TokenRange train, validation;
};

/// The last tenth, rounded down, for validation.
TokenSplit split_for_validation(TokenRange range);

/// The last tenth of every file, rounded down, for validation; moved to the end of the stream.
TokenSplit split_each_file(TokenStream& stream);

}  // namespace mantissa
