// How a rank waits for the others, over any network.
#include "mantissa/ranks/transport.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "mantissa/base/clock.h"

namespace mantissa::inline v0 {

namespace {

/// A transport for one rank where the other ranks do not exist.
class SilentTransport final : public Transport {
  public:
    explicit SilentTransport(int ranks) : Transport(0), ranks_(ranks) {}
    int rank() const override { return 0; }
    int ranks() const override { return ranks_; }
    void start(std::span<const std::span<const std::byte>>, std::span<const std::span<std::byte>>) override {}
    void advance() override {}
    int finish_oldest() override { return -1; }
    void abort() noexcept override {}

  private:
    int ranks_;
};

}  // namespace

std::unique_ptr<Transport> silent_transport(int ranks) { return std::make_unique<SilentTransport>(ranks); }

/// MPI waits by asking without a pause, which would take the core from threads that compute. So this asks and
/// sleeps by turns. Only where a step waits, and so leaves a core, it lets others run at first instead, which
/// notices an end some 50 microseconds earlier.
void Transport::pause(double waited, bool is_urgent) const {
    constexpr unsigned shortly = 50, later = 1000;  // microseconds
    if (is_urgent && !shares_core_ && waited < 1e-3)
        ::sched_yield();
    else
        ::usleep(waited < 1 ? shortly : later);
}

bool Transport::wait_for_oldest(const WaitingFor& waiting) {
    for (const Stopwatch watch;;) {
        const int late = finish_oldest();
        if (late < 0) return true;
        if (waiting.is_called()) return false;
        const double waited = watch.seconds();
        if (waited > seconds_) throw LostRank(late, fmt::format("no answer within {:g} s", seconds_));
        pause(waited, waiting.is_urgent());
    }
}

void Transport::exchange(std::span<const std::span<const std::byte>> send,
                         std::span<const std::span<std::byte>> receive) {
    start(send, receive);
    wait_for_oldest({.is_called = [] { return false; }, .is_urgent = [] { return true; }});
}

}  // namespace mantissa
