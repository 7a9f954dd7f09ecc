#include "mantissa/base/checksum.h"

#include <fmt/format.h>

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

}  // namespace mantissa
