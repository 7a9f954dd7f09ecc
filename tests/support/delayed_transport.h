// A transport over a link of a given speed: delays another transport's exchanges. The bytes of one follow the
// previous one's; latencies overlap.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "mantissa/ranks/transport.h"

namespace mantissa::testing {

class DelayedTransport final : public Transport {
  public:
    /// `latency` in seconds; bytes a second, between a rank and all others, each way at once.
    DelayedTransport(std::unique_ptr<Transport> under, double latency, double bytes_per_second)
        : Transport(60), under_(std::move(under)), latency_(latency), bytes_per_second_(bytes_per_second) {}

    int rank() const override { return under_->rank(); }
    int ranks() const override { return under_->ranks(); }
    void start(std::span<const std::span<const std::byte>> send,
               std::span<const std::span<std::byte>> receive) override {
        double sent = 0, received = 0;
        for (const auto& each : send) sent += static_cast<double>(each.size());
        for (const auto& each : receive) received += static_cast<double>(each.size());
        link_is_free_ =
            std::max(link_is_free_, Clock::now()) + in_clock(std::max(sent, received) / bytes_per_second_);
        arrivals_.push_back(link_is_free_ + in_clock(latency_));
        under_->start(send, receive);
    }
    void advance() override { under_->advance(); }
    int finish_oldest() override {
        if (Clock::now() < arrivals_.front()) {
            under_->advance();
            return rank() == 0 ? 1 : 0;
        }
        const int late = under_->finish_oldest();
        if (late < 0) arrivals_.pop_front();
        return late;
    }
    void abort() noexcept override { under_->abort(); }

  private:
    using Clock = std::chrono::steady_clock;
    static Clock::duration in_clock(double seconds) {
        return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    }

    std::unique_ptr<Transport> under_;
    double latency_, bytes_per_second_;
    Clock::time_point link_is_free_;
    std::deque<Clock::time_point> arrivals_;  // of exchanges under way
};

}  // namespace mantissa::testing
