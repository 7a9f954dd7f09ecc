// A table with pairs of numbers as keys. Internal to data/tokenizer*.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "mantissa/data/tokenizer.h"

namespace mantissa::inline v0 {

/// Maps a pair of neighbouring tokens to the merge that joins them. Open addressing, at most half full.
class PairTable {
  public:
    static constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

    struct Entry {
        TokenId left = 0, right = 0, result = 0;
        std::uint32_t rank = no_rank;  // also marks a free slot
    };

    void reserve(std::size_t pairs);
    /// False if the pair is there already.
    bool insert(const Entry& entry);

    /// The entry of the pair; its rank is no_rank if these two do not merge.
    const Entry& find(TokenId left, TokenId right) const {
        std::size_t slot = slot_of(left, right);
        while (slots_[slot].rank != no_rank && (slots_[slot].left != left || slots_[slot].right != right))
            slot = (slot + 1) & mask_;
        return slots_[slot];
    }

  private:
    std::size_t slot_of(TokenId left, TokenId right) const {
        const auto key =
            std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
        return ((key * 0x9E3779B97F4A7C15) >> 32) &
               mask_;  // the upper half: 2^64 / golden ratio mixes upwards
    }

    std::vector<Entry> slots_ = std::vector<Entry>(2);
    std::size_t mask_ = 1;
};

}  // namespace mantissa
