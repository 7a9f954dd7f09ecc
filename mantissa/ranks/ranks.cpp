#include "mantissa/ranks/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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

/// All cores of the host, not only the ones that this process may use.
std::int64_t host_cores() { return ::sysconf(_SC_NPROCESSORS_ONLN); }

}  // namespace

struct Ranks::State {
    explicit State(std::unique_ptr<Transport> given) : transport(std::move(given)), exchange(*transport) {}

    const std::unique_ptr<Transport> transport;
    Exchange exchange;

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;  // each begins an exchange, or does all of it
    bool stopping = false, working = false;
    std::exception_ptr failure;          // the first, after which nothing travels
    std::map<int, bool> sums;            // sums under way; true: done
    std::atomic<bool> is_called{false};  // a job was added, or this ends
    std::atomic<int> waiting{0};         // calls of `wait_until`
    Time time;
    Stopwatch travelling;  // since a sum travels, or was done
    std::thread thread;    // the last member: it works on the others

    void work() {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [&] { return stopping || working || !jobs.empty(); });
            if (stopping) return;
            if (!working) travelling = {};
            working = true;
            is_called = false;
            const std::deque<std::function<void()>> begun = std::exchange(jobs, {});
            const bool had_failed = failure != nullptr;
            lock.unlock();
            std::exception_ptr wrong;
            try {
                if (!had_failed) go_on(begun);
            } catch (...) {
                wrong = std::current_exception();
                exchange.drop();
            }
            lock.lock();
            working = exchange.is_busy();
            if (wrong) failure = wrong;
            if (!working) changed.notify_all();
        }
    }

    void go_on(const std::deque<std::function<void()>>& begun) {
        for (const std::function<void()>& job : begun) job();
        if (exchange.is_busy())
            exchange.go_on({.is_called = [&] { return is_called.load(); },
                            .is_urgent = [&] { return waiting.load() > 0; }});
    }

    void has_done(int sum) {
        const std::lock_guard lock(mutex);
        time.travelled += travelling.seconds();
        travelling = {};
        sums[sum] = true;
        changed.notify_all();
    }

    void add(std::function<void()> job) {
        const std::lock_guard lock(mutex);
        jobs.push_back(std::move(job));
        is_called = true;
        changed.notify_all();
    }

    void stop() {
        {
            const std::lock_guard lock(mutex);
            stopping = is_called = true;
            changed.notify_all();
        }
        thread.join();
    }

    /// Waits until `done`, under the lock, or a failure.
    template <class Done>
    void wait_until(Done&& done) {
        std::unique_lock lock(mutex);
        ++waiting;
        changed.wait(lock, [&] { return failure || done(); });
        --waiting;
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
        state_->transport->set_shares_core(on_this_host() > host_cores());
    } catch (...) {
        state_->stop();
        throw;
    }
}

Ranks::~Ranks() { state_->stop(); }

int Ranks::on_this_host() const { return static_cast<int>(std::ranges::count(hosts_, host_of(rank_))); }

std::string Ranks::name_of(int rank) const { return fmt::format("rank {} on {}", rank, host_of(rank)); }

void Ranks::run(const std::function<void()>& job) {
    bool done = false;
    state_->add([&, state = state_.get()] {
        job();
        const std::lock_guard lock(state->mutex);
        done = true;
        state->changed.notify_all();
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

/// Calls `begin` on the thread that works, with a function to call when the sum is done.
void Ranks::start(int sum, std::function<void(std::function<void()>)> begin) {
    if (alone_ > 0 || size_ == 1) return;
    {
        const std::lock_guard lock(state_->mutex);
        check(state_->sums.emplace(sum, false).second, "a sum is waited for before it begins again");
    }
    state_->add([sum, state = state_.get(), begin = std::move(begin)] {
        begin([sum, state] { state->has_done(sum); });
    });
}

void Ranks::start_sum(int sum, std::vector<std::span<float>> numbers, Wire wire) {
    start(sum, [=, &exchange = state_->exchange, all = Scattered<float>(std::move(numbers))](auto done) {
        exchange.start_sum(all, wire, std::move(done));
    });
}

void Ranks::start_sum_of_parts(int sum, std::vector<std::vector<std::span<float>>> by_rank, Wire wire) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum, [=, &exchange = state_->exchange, all = scattered(std::move(by_rank))](auto done) {
        exchange.start_sum_of_parts(all, wire, std::move(done));
    });
}

void Ranks::start_gather(int sum, std::vector<std::vector<std::span<std::byte>>> by_rank) {
    check(std::ssize(by_rank) == size_, "each rank has a part");
    start(sum, [&exchange = state_->exchange, all = scattered(std::move(by_rank))](auto done) {
        exchange.start_gather(all, std::move(done));
    });
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
