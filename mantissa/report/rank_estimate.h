// Estimates a training step's time on several ranks before there are any. The launches of its plan run in
// order; exchanges run beside them, one piece after another over a link of a given speed, as in Exchange
// (ranks/exchange.h). Exchange time beside launches is hidden; a launch that awaits an exchange waits for its
// rest.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// The link between a rank and all others together.
struct RankLink {
    double bytes_per_second = 0;  ///< each way, both ways at once
    double latency = 0;           ///< seconds per exchange beside its bytes; overlaps for several exchanges
    /// Rate of gathering, adding and putting back exchanged bytes while others travel. 0: no time.
    double local_bytes_per_second = 0;
    /// Whether sums travel in pieces, several at a time, as on CPUs; else whole and one after another, as on
    /// GPUs.
    bool in_pieces = true;
    /// Core time per byte sent, and per byte received.
    double core_seconds_per_byte = 0;
    /// Threads of a rank, one per core: they lose the core time of exchanges. 0: other hardware does it.
    int threads = 0;

    /// TCP's value, through Open MPI, to and from a network namespace: 45 ms for 52 MB on a Zen 4 core.
    static constexpr double core_seconds_per_byte_of_tcp = 0.8e-9;
};

struct RankEstimate {
    double seconds = 0;     ///< of a step
    double travelling = 0;  ///< seconds in which an exchange was under way
    double waiting = 0;     ///< seconds in which a step waited for exchanges
    /// The share of travelling time without waiting.
    double hidden() const { return travelling > 0 ? 1 - waiting / travelling : 1; }
};

/// `node_seconds`: per planned node of the step's plan, without waiting. `before`: seconds of the
/// micro-batches before the last.
RankEstimate estimate_step(const Plan& step, std::span<const double> node_seconds, double before,
                           const RankLink& link);

/// Seconds of each planned node, from its arithmetic and bytes: at half of the unit's peak and half of
/// copying's, which models reach on the recorded machines.
std::vector<double> estimated_node_seconds(const Plan& plan, const Peaks& peaks, const Target& target);

/// A line of a table of estimates.
struct RankOption {
    std::string what;  ///< "buckets of 16 MB"
    RankEstimate estimate;
    double units_per_second = 0;  ///< of all ranks
};

/// The lines, and the one with the highest rate.
std::string rank_table(const std::vector<RankOption>& options, const std::string& unit);

}  // namespace mantissa
