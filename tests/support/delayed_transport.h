// A transport over a link of a given speed: the exchanges of another one, each of which takes its time.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "mantissa/ranks/transport.h"

namespace mantissa::testing {

class DelayedTransport final : public Transport {
  public:
    /// `latency` in seconds, and bytes a second, of a rank to all others and from them at the same time.
    DelayedTransport(std::unique_ptr<Transport> under, double latency, double bytes_per_second)
        : under_(std::move(under)), latency_(latency), bytes_per_second_(bytes_per_second) {}

    int rank() const override { return under_->rank(); }
    int ranks() const override { return under_->ranks(); }
    void exchange(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) override {
        const auto begin = std::chrono::steady_clock::now();
        double sent = 0, received = 0;
        for (const auto& each : send) sent += static_cast<double>(each.size());
        for (const auto& each : receive) received += static_cast<double>(each.size());
        under_->exchange(send, receive);
        std::this_thread::sleep_until(
            begin + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(
                        latency_ + std::max(sent, received) / bytes_per_second_)));
    }
    void abort() noexcept override { under_->abort(); }

  private:
    std::unique_ptr<Transport> under_;
    double latency_, bytes_per_second_;
};

}  // namespace mantissa::testing
