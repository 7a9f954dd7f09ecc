#include "mantissa/base/checksum.h"

#include <fmt/format.h>

#include <array>

// The whole implementation comes from the header, into this file alone: an installed mantissa needs no
// libxxhash.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

struct Checksum::State {
    State() { check(state && XXH3_64bits_reset(state) == XXH_OK, "a checksum can be begun"); }
    ~State() { XXH3_freeState(state); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    XXH3_state_t* state = XXH3_createState();
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) {
    check(XXH3_64bits_update(state_->state, bytes.data(), bytes.size()) == XXH_OK,
          "a checksum can be continued");
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->state); }

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::string long_checksum_text(std::span<const std::byte> bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    return checksum_text(hash.high64) + checksum_text(hash.low64);
}

namespace {

constexpr std::uint32_t reflected_polynomial = 0x82F63B78;

/// The effect of a byte on a checksum that has passed it: a bit at a time, least significant first.
constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table = {};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? reflected_polynomial : 0);
        table[byte] = rest;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> table = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    std::uint32_t crc = ~std::uint32_t{0};
    for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFF];
    return ~crc;
}

}  // namespace mantissa
