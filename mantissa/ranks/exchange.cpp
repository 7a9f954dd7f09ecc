#include "mantissa/ranks/exchange.h"

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/ranks/tree_sum.h"

namespace mantissa::inline v0 {

namespace {

/// Numbers that travel at a time, of all ranks together.
constexpr std::int64_t piece = Exchange::piece_bytes / static_cast<std::int64_t>(sizeof(float));

template <class T>
constexpr bool is_rounded = sizeof(T) < sizeof(float);

/// Memory of FP32 as numbers of another format.
template <class T>
T* numbers_at(float* memory) {
    return reinterpret_cast<T*>(memory);
}

using ToSend = std::vector<std::span<const std::byte>>;
using ToReceive = std::vector<std::span<std::byte>>;

template <class T>
std::int64_t longest(const ByRank<T>& parts) {
    return std::ranges::max(parts, {}, &Scattered<T>::count).count();
}

template <class T>
void copy_from(const Scattered<T>& part, std::int64_t from, std::span<T> to) {
    part.for_each(from, static_cast<std::int64_t>(to.size()), [&](std::span<T> there, std::int64_t at) {
        std::copy(there.begin(), there.end(), to.begin() + at);
    });
}

/// Rounded.
void copy_from(const Scattered<float>& part, std::int64_t from, std::span<BF16> to) {
    part.for_each(from, static_cast<std::int64_t>(to.size()), [&](std::span<float> there, std::int64_t at) {
        std::ranges::transform(there, to.begin() + at, to_bf16);
    });
}

template <class T>
void copy_to(const Scattered<T>& part, std::int64_t from, std::span<T> what) {
    part.for_each(from, static_cast<std::int64_t>(what.size()), [&](std::span<T> there, std::int64_t at) {
        std::copy_n(what.begin() + at, there.size(), there.begin());
    });
}

}  // namespace

Exchange::Exchange(Transport& transport)
    : transport_(transport),
      ranks_(static_cast<std::size_t>(transport.ranks())),
      self_(static_cast<std::size_t>(transport.rank())),
      staged_(static_cast<std::size_t>(piece)),
      // A part is filled up to a whole cache line.
      received_(static_cast<std::size_t>(piece) + 32 * ranks_) {
    check(ranks_ >= 1 && static_cast<std::int64_t>(ranks_) <= piece / 16,
          "there are ranks, each with a part of a piece");
}

/// In two exchanges: sizes, then texts.
std::vector<std::string> Exchange::gather(const std::string& mine) {
    std::vector<std::uint64_t> sizes(ranks_, mine.size());
    const std::uint64_t size = mine.size();
    ToSend send(ranks_, std::as_bytes(std::span(&size, 1)));
    ToReceive receive;
    for (std::uint64_t& each : sizes) receive.push_back(std::as_writable_bytes(std::span(&each, 1)));
    send[self_] = {};
    receive[self_] = {};
    transport_.exchange(send, receive);
    std::vector<std::string> all(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        all[rank].resize(sizes[rank]);
        send[rank] = std::as_bytes(std::span(mine));
        receive[rank] = std::as_writable_bytes(std::span(all[rank]));
    }
    send[self_] = {};
    receive[self_] = {};
    transport_.exchange(send, receive);
    all[self_] = mine;
    return all;
}

void Exchange::sum(const Scattered<float>& numbers, Wire wire) {
    for (std::int64_t from = 0; from < numbers.count(); from += piece) {
        const std::int64_t count = std::min(piece, numbers.count() - from);
        wire == Wire::bf16 ? sum_piece<BF16>(numbers, from, count) : sum_piece<float>(numbers, from, count);
    }
}

/// Terms in `staged`, or, where they are rounded, behind those that are received; sums in `staged`.
template <class T>
void Exchange::sum_piece(const Scattered<float>& numbers, std::int64_t from, std::int64_t count) {
    const auto size = static_cast<std::size_t>(count);
    const std::span<T> sent(is_rounded<T> ? numbers_at<T>(received_.data() + received_.size() / 2)
                                          : numbers_at<T>(staged_.data()),
                            size);
    copy_from(numbers, from, sent);
    // Each rank's part is of whole cache lines, so the last may be shorter, or empty.
    const auto ranks = static_cast<std::int64_t>(ranks_);
    const std::int64_t part = rounded_up(parts_of(count, ranks), 16);
    const auto part_of = [&](auto all, std::size_t rank) {
        const std::int64_t first = std::min(count, part * static_cast<std::int64_t>(rank));
        return all.subspan(static_cast<std::size_t>(first),
                           static_cast<std::size_t>(std::min(part, count - first)));
    };
    const std::span<float> sums = std::span(staged_).first(size), mine = part_of(sums, self_);
    ToSend send(ranks_);
    ToReceive receive(ranks_);
    std::vector<const T*> terms(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::span<T> theirs(numbers_at<T>(received_.data()) + rank * mine.size(), mine.size());
        terms[rank] = rank == self_ ? part_of(sent, self_).data() : theirs.data();
        if (rank == self_) continue;
        send[rank] = std::as_bytes(part_of(sent, rank));
        receive[rank] = std::as_writable_bytes(theirs);
    }
    transport_.exchange(send, receive);
    tree_sum(terms, static_cast<std::int64_t>(mine.size()), mine.data());
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (rank == self_) continue;
        send[rank] = std::as_bytes(mine);
        receive[rank] = std::as_writable_bytes(part_of(sums, rank));
    }
    transport_.exchange(send, receive);
    copy_to(numbers, from, sums);
}

/// Room for a share of a piece for each rank: of `buffer`, from where that of a rank begins.
std::int64_t Exchange::share() const { return piece / static_cast<std::int64_t>(ranks_) / 16 * 16; }

template <class T>
std::span<T> Exchange::share_of(std::size_t rank, std::vector<float>& buffer, std::int64_t count) const {
    float* const begin = buffer.data() + static_cast<std::int64_t>(rank) * share();
    return {reinterpret_cast<T*>(begin), static_cast<std::size_t>(count)};
}

void Exchange::sum_parts(const ByRank<float>& parts, Wire wire) {
    for (std::int64_t from = 0; from < longest(parts); from += share())
        wire == Wire::bf16 ? sum_shares<BF16>(parts, from) : sum_shares<float>(parts, from);
}

/// Of each rank's part as much as a share holds, from `from` on. No rank's own term is received, so its sums
/// have that place.
template <class T>
void Exchange::sum_shares(const ByRank<float>& parts, std::int64_t from) {
    const std::int64_t own = parts[self_].left(from, share());
    ToSend send(ranks_);
    ToReceive receive(ranks_);
    std::vector<const T*> terms(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const auto theirs = share_of<T>(rank, staged_, parts[rank].left(from, share()));
        copy_from(parts[rank], from, theirs);
        const auto term = share_of<T>(rank, received_, own);
        terms[rank] = rank == self_ ? theirs.data() : term.data();
        if (rank == self_) continue;
        send[rank] = std::as_bytes(theirs);
        receive[rank] = std::as_writable_bytes(term);
    }
    transport_.exchange(send, receive);
    const auto sums = share_of<float>(self_, received_, own);
    tree_sum(terms, own, sums.data());
    copy_to(parts[self_], from, sums);
}

void Exchange::gather_parts(const ByRank<std::byte>& parts) {
    const std::int64_t most = share() * static_cast<std::int64_t>(sizeof(float));
    for (std::int64_t from = 0; from < longest(parts); from += most) {
        const auto own = share_of<std::byte>(self_, staged_, parts[self_].left(from, most));
        copy_from(parts[self_], from, own);
        ToSend send(ranks_, own);
        ToReceive receive(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (rank != self_)
                receive[rank] = share_of<std::byte>(rank, received_, parts[rank].left(from, most));
        send[self_] = {};
        transport_.exchange(send, receive);
        for (std::size_t rank = 0; rank < ranks_; ++rank) copy_to(parts[rank], from, receive[rank]);
    }
}

}  // namespace mantissa
