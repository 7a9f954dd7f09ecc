// How long a training step takes on several ranks, before there are any: the launches of its plan in their
// order, and beside them what ranks exchange, one piece after another over a link of a given speed, as
// Exchange does it (ranks/exchange.h). What is on its way while launches run is hidden; a launch that awaits
// it waits for the rest.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// The link that a rank has to all others together.
struct RankLink {
    double bytes_per_second = 0;  ///< each way, both at a time
    double latency = 0;           ///< seconds that an exchange takes beside its bytes; those of several pass
                                  ///< at a time
    /// At which exchanged bytes are brought together, added up and put back, while others travel. 0: at once.
    double local_bytes_per_second = 0;
    /// Whether sums travel in pieces, several at a time, as on CPUs; else whole and one after another, as on
    /// GPUs.
    bool in_pieces = true;
    /// The time of a core for each byte that is sent, and for each that is received.
    double core_seconds_per_byte = 0;
    /// Threads of a rank, on as many cores: they lose what a core does for exchanges. 0: that is done
    /// elsewhere.
    int threads = 0;

    /// The figure of TCP, through Open MPI, to and from a network namespace: 45 ms for 52 MB on a Zen 4 core.
    static constexpr double core_seconds_per_byte_of_tcp = 0.8e-9;
};

struct RankEstimate {
    double seconds = 0;     ///< of a step
    double travelling = 0;  ///< seconds in which something was on its way
    double waiting = 0;     ///< seconds in which a step waited for it
    /// The share of what travelled that no step waited for.
    double hidden() const { return travelling > 0 ? 1 - waiting / travelling : 1; }
};

/// `node_seconds`: of each planned node of the plan of a step; what a launch waits in it apart. `before`:
/// seconds of the micro-batches before the last.
RankEstimate estimate_step(const Plan& step, std::span<const double> node_seconds, double before,
                           const RankLink& link);

/// Seconds of each planned node, from its arithmetic and bytes: at half of what the unit reaches and of what
/// copying reaches, as launches of models come to on the machines that records are of.
std::vector<double> estimated_node_seconds(const Plan& plan, const Peaks& peaks, const Target& target);

/// A line of a table of estimates.
struct RankOption {
    std::string what;  ///< "buckets of 16 MB"
    RankEstimate estimate;
    double units_per_second = 0;  ///< of all ranks
};

/// The lines, and which gives most.
std::string rank_table(const std::vector<RankOption>& options, const std::string& unit);

}  // namespace mantissa
