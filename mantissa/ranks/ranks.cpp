#include "mantissa/ranks/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "mantissa/base/clock.h"
#include "mantissa/ranks/exchange.h"

namespace mantissa::inline v0 {

namespace {

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

}  // namespace

struct Ranks::State {
    explicit State(std::unique_ptr<Transport> given) : transport(std::move(given)), exchange(*transport) {}

    const std::unique_ptr<Transport> transport;
    Exchange exchange;

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
};

Ranks::Ranks(std::unique_ptr<Transport> transport)
    : state_(std::make_unique<State>(std::move(transport))),
      rank_(state_->transport->rank()),
      size_(state_->transport->ranks()) {
    for (int rank = 0; rank < size_; ++rank) hosts_.push_back("a host that is not known yet");
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
        run([&, state = state_.get()] { all = state->exchange.gather(mine); });
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

void Ranks::start_sum(int sum, std::vector<std::span<float>> numbers, Wire wire) {
    start(sum, [=, state = state_.get(), all = Scattered<float>(std::move(numbers))] {
        state->exchange.sum(all, wire);
    });
}

void Ranks::start_sum_of_parts(int sum, std::vector<std::vector<std::span<float>>> by_rank, Wire wire) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum, [=, state = state_.get(), all = scattered(std::move(by_rank))] {
        state->exchange.sum_parts(all, wire);
    });
}

void Ranks::start_gather(int sum, std::vector<std::vector<std::span<std::byte>>> by_rank) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum,
          [state = state_.get(), all = scattered(std::move(by_rank))] { state->exchange.gather_parts(all); });
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

std::int64_t Ranks::bytes() const { return Exchange::bytes(); }

void Ranks::abort() noexcept { state_->transport->abort(); }

}  // namespace mantissa
