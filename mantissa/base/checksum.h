// Checksums: XXH3 (64 bits) and CRC-32C find accidental changes of stored bytes; no protection against
// deliberate ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// XXH3 of bytes that come in pieces.
class Checksum {
  public:
    Checksum();
    ~Checksum();
    Checksum(Checksum&&) noexcept;
    Checksum& operator=(Checksum&&) noexcept;

    void add(std::span<const std::byte> bytes);
    /// The checksum of all bytes added so far.
    std::uint64_t value() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// Sixteen lower-case hexadecimal digits, as `xxhsum -H3` prints it.
std::string checksum_text(std::uint64_t checksum);

/// XXH3 of 128 bits in 32 such digits, where equal ones are to mean equal bytes.
std::string long_checksum_text(std::span<const std::byte> bytes);

/// CRC-32C (Castagnoli: polynomial 0x1EDC6F41, reflected), the checksum of TFRecord files. RFC 3720, B.4.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace mantissa
