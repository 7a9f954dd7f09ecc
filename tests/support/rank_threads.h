// Ranks as threads of one process, connected by sockets, in place of several processes.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "mantissa/ranks/ranks.h"

namespace mantissa::testing {

/// Runs `body` once for each of `count` ranks, which wait up to `seconds` for one another. Returns each
/// rank's exception, null if it returned.
inline std::vector<std::exception_ptr> run_ranks(int count, const std::function<void(Ranks&)>& body,
                                                 double seconds = 60) {
    std::vector<std::unique_ptr<Transport>> transports = connected_ranks(count, seconds);
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < transports.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                Ranks ranks(std::move(transports[rank]));
                body(ranks);
            } catch (...) {
                thrown[rank] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return thrown;
}

/// As run_ranks, if none may throw: rethrows the first exception.
inline void run_good_ranks(int count, const std::function<void(Ranks&)>& body) {
    for (const std::exception_ptr& each : run_ranks(count, body))
        if (each) std::rethrow_exception(each);
}

inline std::string what_of(const std::exception_ptr& thrown) {
    if (!thrown) return "";
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace mantissa::testing
