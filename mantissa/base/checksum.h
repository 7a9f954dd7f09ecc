// XXH3 (64 bits): finds accidental changes of stored bytes; no protection against deliberate ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mantissa::inline v0 {

/// The checksum of bytes that come in pieces.
class Checksum {
  public:
    Checksum();
    ~Checksum();
    Checksum(Checksum&&) noexcept;
    Checksum& operator=(Checksum&&) noexcept;

    void add(std::span<const std::byte> bytes);
    /// The checksum of what was added so far.
    std::uint64_t value() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// Sixteen lower-case hexadecimal digits, as `xxhsum -H3` prints it.
std::string checksum_text(std::uint64_t checksum);

}  // namespace mantissa
