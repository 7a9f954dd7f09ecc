#include "mantissa/ranks/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "mantissa/base/clock.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/ranks/tree_sum.h"

namespace mantissa::inline v0 {

namespace {

/// Numbers that travel at a time, of all ranks together.
constexpr std::int64_t piece = Ranks::piece_bytes / static_cast<std::int64_t>(sizeof(float));

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

using ToSend = std::vector<std::span<const std::byte>>;
using ToReceive = std::vector<std::span<std::byte>>;

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
std::vector<Scattered<T>> scattered(std::vector<std::vector<std::span<T>>> by_rank) {
    std::vector<Scattered<T>> parts;
    for (std::vector<std::span<T>>& each : by_rank) parts.emplace_back(std::move(each));
    return parts;
}

}  // namespace

struct Ranks::State {
    explicit State(std::unique_ptr<Transport> given)
        : transport(std::move(given)),
          ranks(static_cast<std::size_t>(transport->ranks())),
          self(static_cast<std::size_t>(transport->rank())) {}

    const std::unique_ptr<Transport> transport;
    const std::size_t ranks, self;
    std::vector<float> staged, received;  // a piece; a part of it from each rank

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool stopping = false, working = false;
    std::exception_ptr failure;  // the first, after which nothing travels
    std::map<int, bool> sums;    // those that are under way; true: done
    Time time;
    std::thread thread;  // the last: it works on the others

    void work() {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return stopping || !jobs.empty(); });
            if (stopping) return;
            const std::function<void()> job = std::move(jobs.front());
            jobs.pop_front();
            working = true;
            lock.unlock();
            std::exception_ptr wrong;
            try {
                if (!failed()) job();
            } catch (...) {
                wrong = std::current_exception();
            }
            lock.lock();
            working = false;
            if (wrong && !failure) failure = wrong;
            changed.notify_all();
        }
    }

    bool failed() {
        const std::lock_guard lock(mutex);
        return failure != nullptr;
    }

    void add(std::function<void()> job) {
        const std::lock_guard lock(mutex);
        jobs.push_back(std::move(job));
        changed.notify_all();
    }

    /// Waits until `done`, under the lock, or something failed.
    template <class Done>
    void wait_until(Done&& done) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return failure || done(); });
        if (failure) std::rethrow_exception(failure);
    }

    void exchange(const ToSend& send, const ToReceive& receive) { transport->exchange(send, receive); }

    /// What every rank gives, in two exchanges: sizes, then texts.
    std::vector<std::string> gather(const std::string& mine) {
        std::vector<std::uint64_t> sizes(ranks, mine.size());
        const std::uint64_t size = mine.size();
        ToSend send(ranks, std::as_bytes(std::span(&size, 1)));
        ToReceive receive;
        for (std::uint64_t& each : sizes) receive.push_back(std::as_writable_bytes(std::span(&each, 1)));
        send[self] = {};
        receive[self] = {};
        exchange(send, receive);
        std::vector<std::string> all(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            all[rank].resize(sizes[rank]);
            send[rank] = std::as_bytes(std::span(mine));
            receive[rank] = std::as_writable_bytes(std::span(all[rank]));
        }
        send[self] = {};
        receive[self] = {};
        exchange(send, receive);
        all[self] = mine;
        return all;
    }

    void take_buffers() {
        staged.resize(static_cast<std::size_t>(piece));
        // A part is filled up to a whole cache line.
        received.resize(static_cast<std::size_t>(piece) + 32 * ranks);
    }

    void sum_up(const Scattered<float>& numbers) {
        for (std::int64_t from = 0; from < numbers.count(); from += piece)
            sum_piece(numbers, from, std::min(piece, numbers.count() - from));
    }

    /// Room for a share of a piece for each rank: of `buffer`, from where that of a rank begins.
    std::int64_t share() const { return piece / static_cast<std::int64_t>(ranks) / 16 * 16; }
    template <class T>
    std::span<T> share_of(std::size_t rank, std::vector<float>& buffer, std::int64_t count) const {
        float* const begin = buffer.data() + static_cast<std::int64_t>(rank) * share();
        return {reinterpret_cast<T*>(begin), static_cast<std::size_t>(count)};
    }

    template <class T>
    static std::int64_t longest(const std::vector<Scattered<T>>& parts) {
        return std::ranges::max(parts, {}, &Scattered<T>::count).count();
    }

    template <class T>
    static void copy_from(const Scattered<T>& part, std::int64_t from, std::span<T> to) {
        part.for_each(from, static_cast<std::int64_t>(to.size()), [&](std::span<T> there, std::int64_t at) {
            std::copy(there.begin(), there.end(), to.begin() + at);
        });
    }

    template <class T>
    static void copy_to(const Scattered<T>& part, std::int64_t from, std::span<T> what) {
        part.for_each(from, static_cast<std::int64_t>(what.size()), [&](std::span<T> there, std::int64_t at) {
            std::copy_n(what.begin() + at, there.size(), there.begin());
        });
    }

    void sum_parts(const std::vector<Scattered<float>>& parts) {
        for (std::int64_t from = 0; from < longest(parts); from += share()) sum_shares(parts, from);
    }

    /// Of each rank's part as much as a share holds, from `from` on.
    void sum_shares(const std::vector<Scattered<float>>& parts, std::int64_t from) {
        const std::int64_t own = parts[self].left(from, share());
        ToSend send(ranks);
        ToReceive receive(ranks);
        std::vector<const float*> terms(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const auto theirs = share_of<float>(rank, staged, parts[rank].left(from, share()));
            copy_from(parts[rank], from, theirs);
            const auto term = share_of<float>(rank, received, own);
            terms[rank] = rank == self ? theirs.data() : term.data();
            if (rank == self) continue;
            send[rank] = std::as_bytes(theirs);
            receive[rank] = std::as_writable_bytes(term);
        }
        exchange(send, receive);
        const auto sums = share_of<float>(self, staged, own);
        tree_sum(terms, own, sums.data());
        copy_to(parts[self], from, sums);
    }

    void gather_parts(const std::vector<Scattered<std::byte>>& parts) {
        const std::int64_t most = share() * static_cast<std::int64_t>(sizeof(float));
        for (std::int64_t from = 0; from < longest(parts); from += most) {
            const auto own = share_of<std::byte>(self, staged, parts[self].left(from, most));
            copy_from(parts[self], from, own);
            ToSend send(ranks, own);
            ToReceive receive(ranks);
            for (std::size_t rank = 0; rank < ranks; ++rank)
                if (rank != self)
                    receive[rank] = share_of<std::byte>(rank, received, parts[rank].left(from, most));
            send[self] = {};
            exchange(send, receive);
            for (std::size_t rank = 0; rank < ranks; ++rank) copy_to(parts[rank], from, receive[rank]);
        }
    }

    void sum_piece(const Scattered<float>& numbers, std::int64_t from, std::int64_t count) {
        numbers.for_each(from, count, [&](std::span<float> there, std::int64_t at) {
            std::copy(there.begin(), there.end(), staged.begin() + at);
        });
        // Each rank's part is of whole cache lines, so the last may be shorter, or empty.
        const std::int64_t part =
            rounded_up((count + static_cast<std::int64_t>(ranks) - 1) / static_cast<std::int64_t>(ranks), 16);
        const auto part_of = [&](std::size_t rank) {
            const std::int64_t first = std::min(count, part * static_cast<std::int64_t>(rank));
            return std::span(staged).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(std::min(part, count - first)));
        };
        const std::span<float> mine = part_of(self);
        ToSend send(ranks);
        ToReceive receive(ranks);
        std::vector<const float*> terms(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            const std::span<float> theirs = std::span(received).subspan(rank * mine.size(), mine.size());
            terms[rank] = rank == self ? mine.data() : theirs.data();
            if (rank == self) continue;
            send[rank] = std::as_bytes(part_of(rank));
            receive[rank] = std::as_writable_bytes(theirs);
        }
        exchange(send, receive);
        tree_sum(terms, static_cast<std::int64_t>(mine.size()), mine.data());
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (rank == self) continue;
            send[rank] = std::as_bytes(mine);
            receive[rank] = std::as_writable_bytes(part_of(rank));
        }
        exchange(send, receive);
        numbers.for_each(from, count, [&](std::span<float> there, std::int64_t at) {
            std::copy_n(staged.begin() + at, there.size(), there.begin());
        });
    }
};

Ranks::Ranks(std::unique_ptr<Transport> transport)
    : state_(std::make_unique<State>(std::move(transport))),
      rank_(state_->transport->rank()),
      size_(state_->transport->ranks()) {
    check(size_ >= 1 && size_ <= piece / 16, "there are ranks, each with a part of a piece");
    for (int rank = 0; rank < size_; ++rank) hosts_.push_back("a host that is not known yet");
    state_->take_buffers();
    state_->thread = std::thread([state = state_.get()] { state->work(); });
    try {
        hosts_ = gather(host_name());
    } catch (...) {
        {
            const std::lock_guard lock(state_->mutex);
            state_->stopping = true;
            state_->changed.notify_all();
        }
        state_->thread.join();
        throw;
    }
}

Ranks::~Ranks() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopping = true;
        state_->changed.notify_all();
    }
    state_->thread.join();
}

std::string Ranks::name_of(int rank) const { return fmt::format("rank {} on {}", rank, host_of(rank)); }

void Ranks::run(const std::function<void()>& job) {
    bool done = false;
    state_->add([&, state = state_.get()] {
        job();
        const std::lock_guard lock(state->mutex);
        done = true;
    });
    state_->wait_until([&] { return done; });
}

namespace {

/// A failure with the rank's name in front.
[[noreturn]] void throw_named(const Ranks& ranks, const LostRank& lost) {
    throw LostRank(lost.rank, fmt::format("{}: {}", ranks.name_of(lost.rank), lost.what()));
}

}  // namespace

std::vector<std::string> Ranks::gather(const std::string& mine) {
    std::vector<std::string> all;
    try {
        run([&, state = state_.get()] { all = state->gather(mine); });
    } catch (const LostRank& lost) {
        throw_named(*this, lost);
    }
    return all;
}

void Ranks::start(int sum, std::function<void()> job) {
    if (alone_ > 0 || size_ == 1) return;
    {
        const std::lock_guard lock(state_->mutex);
        check(state_->sums.emplace(sum, false).second, "a sum is waited for before it begins again");
    }
    state_->add([sum, state = state_.get(), job = std::move(job)] {
        const Stopwatch watch;
        job();
        const std::lock_guard lock(state->mutex);
        state->time.travelled += watch.seconds();
        state->sums[sum] = true;
    });
}

void Ranks::start_sum(int sum, std::vector<std::span<float>> numbers) {
    start(sum, [state = state_.get(), all = Scattered<float>(std::move(numbers))] { state->sum_up(all); });
}

void Ranks::start_sum_of_parts(int sum, std::vector<std::vector<std::span<float>>> by_rank) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum, [state = state_.get(), all = scattered(std::move(by_rank))] { state->sum_parts(all); });
}

void Ranks::start_gather(int sum, std::vector<std::vector<std::span<std::byte>>> by_rank) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum, [state = state_.get(), all = scattered(std::move(by_rank))] { state->gather_parts(all); });
}

void Ranks::wait(int sum) {
    if (alone_ > 0 || size_ == 1) return;
    const Stopwatch watch;
    try {
        state_->wait_until([&] { return state_->sums.at(sum); });
    } catch (const LostRank& lost) {
        throw_named(*this, lost);
    }
    const std::lock_guard lock(state_->mutex);
    state_->sums.erase(sum);
    state_->time.waited += watch.seconds();
}

void Ranks::settle() noexcept {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->jobs.empty() && !state_->working; });
    state_->sums.clear();
}

Ranks::Time Ranks::take_time() {
    const std::lock_guard lock(state_->mutex);
    return std::exchange(state_->time, {});
}

std::int64_t Ranks::bytes() const { return 2 * piece * static_cast<std::int64_t>(sizeof(float)); }

void Ranks::abort() noexcept { state_->transport->abort(); }

}  // namespace mantissa
