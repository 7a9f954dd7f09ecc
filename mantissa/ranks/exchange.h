// Sums and gathers of numbers that lie in many places, over a transport, a piece at a time: what Ranks does
// on its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/ranks/transport.h"
#include "mantissa/ranks/wire.h"

namespace mantissa::inline v0 {

/// What lies in several places, one after another.
template <class T>
class Scattered {
  public:
    explicit Scattered(std::vector<std::span<T>> parts) : parts_(std::move(parts)) {
        for (const std::span<T>& part : parts_) count_ += static_cast<std::int64_t>(part.size());
    }
    std::int64_t count() const { return count_; }

    /// Calls use(what is there, index in [0, count)) for what lies in [from, from + count), in order. Later
    /// calls begin no earlier than this one.
    template <class Use>
    void for_each(std::int64_t from, std::int64_t count, Use&& use) const {
        std::int64_t begin = 0;
        for (const std::span<T>& part : parts_) {
            const std::int64_t end = begin + static_cast<std::int64_t>(part.size());
            const std::int64_t first = std::max(begin, from), last = std::min(end, from + count);
            if (first < last)
                use(part.subspan(static_cast<std::size_t>(first - begin),
                                 static_cast<std::size_t>(last - first)),
                    first - from);
            begin = end;
        }
    }

    /// How many of the `most` from there on there are.
    std::int64_t left(std::int64_t from, std::int64_t most) const {
        return std::clamp<std::int64_t>(count_ - from, 0, most);
    }

  private:
    std::vector<std::span<T>> parts_;
    std::int64_t count_ = 0;
};

/// By rank.
template <class T>
using ByRank = std::vector<Scattered<T>>;

template <class T>
ByRank<T> scattered(std::vector<std::vector<std::span<T>>> by_rank) {
    ByRank<T> parts;
    for (std::vector<std::span<T>>& each : by_rank) parts.emplace_back(std::move(each));
    return parts;
}

/// All ranks call the same functions, on as many numbers, in the same order. All throw LostRank.
class Exchange {
  public:
    /// Bytes that travel at a time, of all ranks together: they pay for the latency of two exchanges on a
    /// network of 10 Gb/s, and stay in a cache between the copies.
    static constexpr std::int64_t piece_bytes = std::int64_t{4} << 20;

    explicit Exchange(Transport& transport);

    /// What every rank gives, by rank.
    std::vector<std::string> gather(const std::string& mine);
    /// The numbers become their sums over all ranks. With BF16 on the wire each term is rounded once, a
    /// rank's own as those of the others; they are added in FP32, and sums travel in FP32.
    void sum(const Scattered<float>& numbers, Wire wire);
    /// Those of this rank's part become their sums; of the others' they are only read.
    void sum_parts(const ByRank<float>& parts, Wire wire);
    /// Every rank's part is brought to all.
    void gather_parts(const ByRank<std::byte>& parts);

    /// Memory that it holds.
    static constexpr std::int64_t bytes() { return 2 * piece_bytes; }

  private:
    std::int64_t share() const;
    template <class T>
    std::span<T> share_of(std::size_t rank, std::vector<float>& buffer, std::int64_t count) const;
    template <class T>
    void sum_piece(const Scattered<float>& numbers, std::int64_t from, std::int64_t count);
    template <class T>
    void sum_shares(const ByRank<float>& parts, std::int64_t from);

    Transport& transport_;
    const std::size_t ranks_, self_;
    std::vector<float> staged_, received_;  // a piece; a part of it from each rank
};

}  // namespace mantissa
