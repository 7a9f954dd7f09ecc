#include "mantissa/ranks/exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::int64_t block = 512;  // numbers: the blocks of all levels stay in the first cache
using Block = std::array<float, block>;

void add(float* to, const float* first, const float* second, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = first[i] + second[i];
}

void load(float* to, const float* from, std::int64_t count) { std::copy_n(from, count, to); }
void load(float* to, const BF16* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_f32(from[i]);
}

/// Sums terms[first, last) from element `from` on.
template <class T>
void sum_into(float* sum, std::span<const T* const> terms, std::int64_t from, std::int64_t count,
              std::vector<Block>& levels) {
    if (terms.size() == 1) {
        load(sum, terms[0] + from, count);
        return;
    }
    const std::size_t half = std::bit_ceil(terms.size()) / 2;
    const auto level = static_cast<std::size_t>(std::bit_width(terms.size() - 1)) - 1;
    sum_into(sum, terms.first(half), from, count, levels);
    sum_into(levels[level].data(), terms.subspan(half), from, count, levels);
    add(sum, sum, levels[level].data(), count);
}

template <class T>
void sum_of_terms(std::span<const T* const> terms, std::int64_t count, float* sum) {
    const FlushSubnormals flush;  // as kernels do
    std::vector<Block> levels(static_cast<std::size_t>(std::bit_width(terms.size())));
    Block whole;
    for (std::int64_t from = 0; from < count; from += block) {
        const std::int64_t here = std::min(block, count - from);
        sum_into(whole.data(), terms, from, here, levels);
        std::copy_n(whole.data(), here, sum + from);  // which may be one of the terms
    }
}

}  // namespace

void tree_sum(std::span<const float* const> terms, std::int64_t count, float* sum) {
    sum_of_terms(terms, count, sum);
}

void tree_sum(std::span<const BF16* const> terms, std::int64_t count, float* sum) {
    sum_of_terms(terms, count, sum);
}

namespace {

/// Numbers that travel at a time, of all ranks together.
constexpr std::int64_t piece_numbers = Exchange::piece_bytes / static_cast<std::int64_t>(sizeof(float));

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

/// Numbers that are copied or added between two calls of advance(): some 50 microseconds' work, while a link
/// of 100 Gb/s fills a socket's buffer.
constexpr std::int64_t numbers_a_look = std::int64_t{1} << 16;

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
std::span<T> slice(std::span<T> all, std::int64_t from, std::int64_t count) {
    return all.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count));
}

}  // namespace

Exchange::Exchange(Transport& transport)
    : transport_(transport),
      ranks_(static_cast<std::size_t>(transport.ranks())),
      self_(static_cast<std::size_t>(transport.rank())) {
    check(ranks_ >= 1 && static_cast<std::int64_t>(ranks_) <= piece_numbers / 16,
          "there are ranks, each with a part of a piece");
    for (std::int64_t i = 0; i < pieces_under_way; ++i)
        // A part is filled up to a whole cache line.
        rooms_.push_back(
            {.staged = std::vector<float>(static_cast<std::size_t>(piece_numbers)),
             .received = std::vector<float>(static_cast<std::size_t>(piece_numbers) + 32 * ranks_)});
    for (Room& room : rooms_) free_.push_back(&room);
}

void Exchange::begin(Work work) {
    if (work.count == 0) {
        work.done();
        return;
    }
    work.unsent = work.has_sums_to_send ? ceil_div(work.count, work.step) : 0;
    under_way_.push_back(std::move(work));
}

/// Begins the next piece, if there is one whose turn it is.
bool Exchange::start_next() {
    if (free_.empty()) return false;
    for (std::size_t i = 0; i < under_way_.size(); ++i) {
        Work& work = under_way_[i];
        if (work.next < work.count) {
            const Piece piece{.of = completed_ + i, .from = work.next, .room = free_.back()};
            free_.pop_back();
            work.start(piece);
            work.next += work.step;
            ++work.unfinished;
            travelling_.push_back(piece);
            return true;
        }
        if (work.unsent > 0) return false;
    }
    return false;
}

void Exchange::go_on(const WaitingFor& waiting) {
    while (start_next()) {
    }
    if (!has_arrived_) {
        has_arrived_ = transport_.wait_for_oldest(waiting);
        return;
    }
    has_arrived_ = false;
    const Piece piece = travelling_.front();
    travelling_.pop_front();
    complete(piece);
}

void Exchange::complete(Piece piece) {
    Work& work = work_of(piece);
    if (work.complete(piece)) {
        piece.has_sums = true;
        --work.unsent;
        travelling_.push_back(piece);
        return;
    }
    free_.push_back(piece.room);
    if (--work.unfinished > 0 || work.next < work.count) return;
    const Done done = std::move(work.done);
    under_way_.pop_front();
    ++completed_;
    done();
}

void Exchange::drop() {
    under_way_.clear();
    travelling_.clear();
}

/// Calls act(from, how many) for [0, count), and advances messages between the calls.
template <class Do>
void Exchange::in_steps(std::int64_t count, const Do& act) {
    for (std::int64_t from = 0; from < count; from += numbers_a_look) {
        act(from, std::min(numbers_a_look, count - from));
        transport_.advance();
    }
}

template <class From, class T>
void Exchange::stage(const From& part, std::int64_t from, std::span<T> to) {
    in_steps(static_cast<std::int64_t>(to.size()),
             [&](std::int64_t at, std::int64_t count) { copy_from(part, from + at, slice(to, at, count)); });
}

template <class T>
void Exchange::put_back(const Scattered<T>& part, std::int64_t from, std::span<T> what) {
    in_steps(static_cast<std::int64_t>(what.size()), [&](std::int64_t begin, std::int64_t count) {
        part.for_each(from + begin, count, [&](std::span<T> there, std::int64_t at) {
            std::copy_n(what.begin() + begin + at, there.size(), there.begin());
        });
    });
}

template <class T>
void Exchange::add_up(const std::vector<const T*>& terms, std::span<float> sums) {
    in_steps(static_cast<std::int64_t>(sums.size()), [&](std::int64_t at, std::int64_t count) {
        std::vector<const T*> here;
        for (const T* term : terms) here.push_back(term + at);
        tree_sum(here, count, sums.data() + at);
    });
}

/// In two exchanges: sizes, then texts.
std::vector<std::string> Exchange::gather(const std::string& mine) {
    while (is_busy()) go_on({.is_called = [] { return false; }, .is_urgent = [] { return true; }});
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

/// A piece of a sum: terms in `staged`, or, where they are rounded, behind the received terms; sums in
/// `staged`.
template <class T>
struct Exchange::SumPiece {
    SumPiece(const Exchange& exchange, const Piece& piece, std::int64_t all)
        : self(exchange.self_), count(std::min(piece_numbers, all - piece.from)) {
        // Each rank's part is of whole cache lines, so the last may be shorter, or empty.
        const auto ranks = static_cast<std::int64_t>(exchange.ranks_);
        part = align_up(ceil_div(count, ranks), 16);
        std::vector<float>&staged = piece.room->staged, &received = piece.room->received;
        const auto size = static_cast<std::size_t>(count);
        sent = {is_rounded<T> ? numbers_at<T>(received.data() + received.size() / 2)
                              : numbers_at<T>(staged.data()),
                size};
        sums = std::span(staged).first(size);
        mine = of_rank(sums, self);
        for (std::size_t rank = 0; rank < exchange.ranks_; ++rank) {
            terms.emplace_back(numbers_at<T>(received.data()) + rank * mine.size(), mine.size());
            if (rank == self) terms.back() = of_rank(sent, self);
        }
    }

    template <class U>
    std::span<U> of_rank(std::span<U> all, std::size_t rank) const {
        const std::int64_t first = std::min(count, part * static_cast<std::int64_t>(rank));
        return slice(all, first, std::min(part, count - first));
    }

    std::size_t self;
    std::int64_t count, part = 0;  // numbers of all ranks, and of one
    std::span<T> sent;
    std::span<float> sums, mine;
    std::vector<std::span<T>> terms;  // of this rank's part, by rank
};

void Exchange::start_sum(Scattered<float> numbers, Wire wire, Done done) {
    wire == Wire::bf16 ? start_sum_in<BF16>(std::move(numbers), std::move(done))
                       : start_sum_in<float>(std::move(numbers), std::move(done));
}

template <class T>
void Exchange::start_sum_in(Scattered<float> numbers, Done done) {
    const std::int64_t count = numbers.count();
    const auto start = [=, this](const Piece& piece) {
        const SumPiece<T> all(*this, piece, count);
        stage(numbers, piece.from, all.sent);
        ToSend send(ranks_);
        ToReceive receive(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (rank == self_) continue;
            send[rank] = std::as_bytes(all.of_rank(all.sent, rank));
            receive[rank] = std::as_writable_bytes(all.terms[rank]);
        }
        transport_.start(send, receive);
    };
    const auto complete = [=, this](const Piece& piece) {
        const SumPiece<T> all(*this, piece, count);
        if (piece.has_sums) {
            put_back(numbers, piece.from, all.sums);
            return false;
        }
        std::vector<const T*> terms;
        for (const std::span<T>& each : all.terms) terms.push_back(each.data());
        add_up(terms, all.mine);
        ToSend send(ranks_);
        ToReceive receive(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (rank == self_) continue;
            send[rank] = std::as_bytes(all.mine);
            receive[rank] = std::as_writable_bytes(all.of_rank(all.sums, rank));
        }
        transport_.start(send, receive);
        return true;
    };
    begin({.count = count,
           .step = piece_numbers,
           .start = start,
           .complete = complete,
           .has_sums_to_send = true,
           .done = std::move(done)});
}

/// Numbers of a rank's share of a piece; shares lie one after another in a buffer.
std::int64_t Exchange::share() const { return piece_numbers / static_cast<std::int64_t>(ranks_) / 16 * 16; }

template <class T>
std::span<T> Exchange::share_of(std::size_t rank, std::vector<float>& buffer, std::int64_t count) const {
    float* const begin = buffer.data() + static_cast<std::int64_t>(rank) * share();
    return {reinterpret_cast<T*>(begin), static_cast<std::size_t>(count)};
}

void Exchange::start_sum_of_parts(ByRank<float> parts, Wire wire, Done done) {
    wire == Wire::bf16 ? start_sum_of_parts_in<BF16>(std::move(parts), std::move(done))
                       : start_sum_of_parts_in<float>(std::move(parts), std::move(done));
}

/// A piece is of each rank's part as much as a share holds. No rank's own term is received, so its sums have
/// that place.
template <class T>
void Exchange::start_sum_of_parts_in(ByRank<float> parts, Done done) {
    const std::int64_t count = longest(parts);
    const auto own_of = [=, this, own = parts[self_].count()](std::int64_t from) {
        return std::clamp<std::int64_t>(own - from, 0, share());
    };
    const auto start = [=, this, parts = parts](const Piece& piece) {
        ToSend send(ranks_);
        ToReceive receive(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            const auto theirs = share_of<T>(rank, piece.room->staged, parts[rank].left(piece.from, share()));
            stage(parts[rank], piece.from, theirs);
            if (rank == self_) continue;
            send[rank] = std::as_bytes(theirs);
            receive[rank] =
                std::as_writable_bytes(share_of<T>(rank, piece.room->received, own_of(piece.from)));
        }
        transport_.start(send, receive);
    };
    const auto complete = [=, this, own = parts[self_]](const Piece& piece) {
        std::vector<const T*> terms;
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            terms.push_back(
                share_of<T>(rank, rank == self_ ? piece.room->staged : piece.room->received, 0).data());
        const auto sums = share_of<float>(self_, piece.room->received, own_of(piece.from));
        add_up(terms, sums);
        put_back(own, piece.from, sums);
        return false;
    };
    begin({.count = count, .step = share(), .start = start, .complete = complete, .done = std::move(done)});
}

void Exchange::start_gather(ByRank<std::byte> parts, Done done) {
    const std::int64_t count = longest(parts), most = share() * static_cast<std::int64_t>(sizeof(float));
    const auto received = [=, this, parts = parts](const Piece& piece) {
        ToReceive receive(ranks_);
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (rank != self_)
                receive[rank] =
                    share_of<std::byte>(rank, piece.room->received, parts[rank].left(piece.from, most));
        return receive;
    };
    const auto start = [=, this, part = parts[self_]](const Piece& piece) {
        const auto own = share_of<std::byte>(self_, piece.room->staged, part.left(piece.from, most));
        stage(part, piece.from, own);
        ToSend send(ranks_, own);
        send[self_] = {};
        transport_.start(send, received(piece));
    };
    const auto complete = [=, this, parts = parts](const Piece& piece) {
        const ToReceive receive = received(piece);
        for (std::size_t rank = 0; rank < ranks_; ++rank) put_back(parts[rank], piece.from, receive[rank]);
        return false;
    };
    begin({.count = count, .step = most, .start = start, .complete = complete, .done = std::move(done)});
}

}  // namespace mantissa
