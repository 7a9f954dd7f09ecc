// Sums and gathers of numbers that lie in many places, over a transport, in pieces: while one piece is added
// up and put back, others travel. Ranks runs it on its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/numerics/sixteen_bit.h"
#include "mantissa/ranks/sharing.h"
#include "mantissa/ranks/transport.h"

namespace mantissa::inline v0 {

/// The sum of the ranks' terms, over the tree that micro-batches add up over (train/accumulate.h). A rank's
/// own micro-batches are a part of it, and ranks go on where they end.
///
/// sum[i] = the terms' i-th numbers added in pairs of ranks, then pairs of pairs; `count` of each. Terms are
/// in the order of ranks. Where their number is no power of two, the first 2^k, with the greatest k, make one
/// part. The sum may lie over one of the terms.
void tree_sum(std::span<const float* const> terms, std::int64_t count, float* sum);

/// The sum of terms in BF16, added in FP32; the sum lies apart from them.
void tree_sum(std::span<const BF16* const> terms, std::int64_t count, float* sum);

/// Data that lies in several places, one after another.
template <class T>
class Scattered {
  public:
    explicit Scattered(std::vector<std::span<T>> parts) : parts_(std::move(parts)) {
        for (const std::span<T>& part : parts_) count_ += static_cast<std::int64_t>(part.size());
    }
    std::int64_t count() const { return count_; }

    /// Calls use(span, its index in [0, count)) for the spans in [from, from + count), in order. Later calls
    /// begin no earlier than this one.
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

    /// The number of elements from `from` on, `most` at most.
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

/// All ranks begin the same sums and gathers, of as many numbers, in the same order. All throw LostRank.
///
/// A sum or gather is begun, and goes on with each call of `go_on`, also while later ones are begun; `done`
/// is called when it is complete. Its numbers stay where they are, and are left alone, until then. The
/// exchanges of all pieces begin in an order that does not depend on time, so that all ranks begin the same
/// ones. A sum or gather begins its first piece when the one before has begun its last exchange.
class Exchange {
  public:
    /// Bytes of a piece, of all ranks together. They are some hundred times the bytes that a network of 10
    /// Gb/s carries while an exchange begins. And they are few enough to stay in a cache between the copies.
    static constexpr std::int64_t piece_bytes = std::int64_t{2} << 20;
    /// Pieces under way at a time: one that is added up here, one that arrives, and one that begins when the
    /// second has arrived.
    static constexpr std::int64_t pieces_under_way = 3;
    using Done = std::function<void()>;

    explicit Exchange(Transport& transport);
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// The words of every rank, by rank. Completes all work under way first.
    std::vector<std::string> gather(const std::string& mine);
    /// The numbers become their sums over all ranks. With BF16 on the wire each term is rounded once, a
    /// rank's own as the others'; they are added in FP32, and sums travel in FP32.
    void start_sum(Scattered<float> numbers, Wire wire, Done done);
    /// The numbers of this rank's part become their sums; the numbers of other parts are only read.
    void start_sum_of_parts(ByRank<float> parts, Wire wire, Done done);
    /// Every rank's part is brought to all.
    void start_gather(ByRank<std::byte> parts, Done done);

    /// Whether something was begun and is not complete.
    bool is_busy() const { return !under_way_.empty(); }
    /// Begins pieces that have room, then completes the oldest piece if it has arrived, else waits for it.
    /// Between the two there is time to begin a piece that travels meanwhile.
    void go_on(const WaitingFor& waiting);
    /// Forgets all work under way, whose numbers are not touched any more: after an error.
    void drop();

    /// Memory that it holds: terms or sums of each piece, and the received terms.
    static constexpr std::int64_t bytes() { return pieces_under_way * 2 * piece_bytes; }

  private:
    /// Memory of a piece.
    struct Room {
        std::vector<float> staged, received;  // a piece; a part of it from each rank
    };
    /// A piece under way.
    struct Piece {
        std::size_t of = 0;     // number of the sum or gather
        std::int64_t from = 0;  // where it begins
        Room* room = nullptr;
        bool has_sums = false;  // it is added up, and the sums travel
    };
    /// A sum or gather under way.
    struct Work {
        std::int64_t count = 0, step = 0;  // numbers of the whole, and of a piece
        std::function<void(const Piece&)> start;
        /// Returns whether it sent sums, which are then awaited.
        std::function<bool(const Piece&)> complete;
        bool has_sums_to_send = false;  // of each piece
        Done done;
        std::int64_t next = 0;                    // where the next piece begins
        std::int64_t unfinished = 0, unsent = 0;  // begun pieces; pieces whose sums were not sent
    };

    void begin(Work work);
    Work& work_of(const Piece& piece) { return under_way_[piece.of - completed_]; }
    bool start_next();
    void complete(Piece piece);
    template <class Do>
    void in_steps(std::int64_t count, const Do& act);
    template <class From, class T>
    void stage(const From& part, std::int64_t from, std::span<T> to);
    template <class T>
    void put_back(const Scattered<T>& part, std::int64_t from, std::span<T> what);
    template <class T>
    void add_up(const std::vector<const T*>& terms, std::span<float> sums);

    std::int64_t share() const;
    template <class T>
    std::span<T> share_of(std::size_t rank, std::vector<float>& buffer, std::int64_t count) const;
    template <class T>
    struct SumPiece;
    template <class T>
    void start_sum_in(Scattered<float> numbers, Done done);
    template <class T>
    void start_sum_of_parts_in(ByRank<float> parts, Done done);

    Transport& transport_;
    const std::size_t ranks_, self_;
    std::vector<Room> rooms_;
    std::vector<Room*> free_;
    std::deque<Work> under_way_;    // the oldest first
    std::size_t completed_ = 0;     // sums and gathers before the ones under way
    std::deque<Piece> travelling_;  // the oldest first
    bool has_arrived_ = false;      // the oldest
};

}  // namespace mantissa
