// Predicts a training step's time on more threads than there are cores here. The blocks of each loop,
// recorded on one thread, are distributed to N threads as the pool does; costs of threads and limits of
// memory are added.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "mantissa/base/loop_recorder.h"
#include "mantissa/report/report.h"
#include "mantissa/report/roofline.h"
#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// A launch as it ran on one thread.
struct RecordedLaunch {
    double seconds = 0;  ///< loops and the work between them
    std::vector<RecordedLoop> loops;
};

/// A step as it ran on one thread.
struct RecordedStep {
    double seconds = 0;                    ///< launches and the time between them
    std::vector<RecordedLaunch> launches;  ///< one a planned node
};

/// The least time of each block over several runs of one plan. `undisturbed`: seconds of each planned node,
/// and of the step, without recording; blocks are scaled to them.
RecordedStep typical_step(const std::vector<RecordedStep>& recorded, const ProfiledStep& undisturbed);

/// The cost of a pool's threads for a loop.
struct PoolCosts {
    double meeting = 0;  ///< seconds of a loop on two threads beside its blocks
    double ticket = 0;   ///< seconds to take blocks from the word shared by all threads
};

/// Measured with two threads; zeros with one core.
PoolCosts measured_pool_costs();

/// Bytes a second, reads and writes counted: of a copy by one thread, and of the memory, the upper limit.
struct MemoryRates {
    double one = 0, all = 0;

    double of(int threads) const { return std::min(threads * one, all); }
};

/// The machine of the prediction.
struct PlannedMachine {
    PoolCosts pool;
    MemoryRates memory;
};

/// Seconds of a launch on so many threads.
struct LaunchEstimate {
    double computing = 0;  ///< blocks as distributed, and work outside loops
    double barriers = 0;   ///< additional costs of the pool's threads
    double memory = 0;     ///< additional waiting for memory
};

/// The greatest cause why a launch takes more than its share of one thread's time.
enum class Hindrance : std::uint8_t { none, serial, few_blocks, long_block, waits };

/// Computing seconds beyond the share of one thread's time, by cause.
struct LostTime {
    double serial = 0, few_blocks = 0, long_block = 0, waits = 0;

    double all() const { return serial + few_blocks + long_block + waits; }
    Hindrance greatest() const;
};

LaunchEstimate estimate_launch(const RecordedLaunch& launch, std::int64_t bytes, int threads,
                               const PlannedMachine& machine);
LostTime lost_time(const RecordedLaunch& launch, int threads);

/// Seconds of a loop on so many threads, which take blocks in order when free, several at once as the pool
/// does. `ticket`: seconds to take them. `heeds_waits`: whether blocks wait for others.
double seconds_on(const RecordedLoop& loop, int threads, double ticket, bool heeds_waits = true);

struct ThreadEstimate {
    int threads = 1;
    double computing = 0, barriers = 0, memory = 0;  ///< of all launches
    double outside = 0;                              ///< between launches
    std::int64_t planned_bytes = 0;                  ///< memory of the step, as planned

    double seconds() const { return computing + barriers + memory + outside; }
};

/// Launches of one operation and kernel that take more than their share.
struct UnscaledLaunches {
    std::string op, stage, kernel;
    int launches = 0;
    double seconds = 0;       ///< on one thread
    double computing = 0;     ///< on the most threads
    std::int64_t blocks = 0;  ///< of the greatest loop
    LostTime lost;
};

struct ThreadReport {
    std::string title;
    PlannedMachine machine;
    std::vector<ThreadEstimate> estimates;   ///< from one thread on
    std::vector<UnscaledLaunches> unscaled;  ///< at the most threads, the worst first

    /// The share of the threads' time that computing needs: 1 for perfect scaling.
    double efficiency(const ThreadEstimate& estimate) const {
        return estimates.front().computing / (estimate.threads * estimate.computing);
    }
};

/// `threads`: numbers to predict, from 1 on. `planned_bytes` are left to the caller.
ThreadReport estimate_threads(const Plan& plan, const RecordedStep& step, const std::vector<int>& threads,
                              const PlannedMachine& machine);

/// 1, 2, 4, 8 ... and `most`.
std::vector<int> thread_counts(int most);

/// The machine and the assumptions, a line per number of threads, and the work that does not scale.
std::string thread_table(const ThreadReport& report);
/// For explain_json; docs/json.md describes every member.
Fields fields_of(const ThreadReport& report);

}  // namespace mantissa
