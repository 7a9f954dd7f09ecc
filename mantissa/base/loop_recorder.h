// Records loops block by block while one thread runs them: how long each block takes, and which earlier
// blocks it waits for. The time of the loops on more threads follows from that.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/base/function_ref.h"

namespace mantissa::inline v0 {

/// A loop as one thread ran it. Seconds count only while it had a core, so that other programs do not count.
struct RecordedLoop {
    struct Wait {
        std::int64_t block = 0, awaited = 0;  ///< `awaited` comes before `block`
    };

    double seconds = 0;          ///< from before the first block to behind the last
    std::vector<double> blocks;  ///< seconds of each
    std::vector<Wait> waits;     ///< in the order of the blocks that wait
};

/// Records, as long as it exists, every loop that its creating thread runs alone. One recorder a thread at a
/// time.
class LoopRecorder {
  public:
    LoopRecorder();
    ~LoopRecorder();
    LoopRecorder(const LoopRecorder&) = delete;
    LoopRecorder& operator=(const LoopRecorder&) = delete;

    /// The recorder of the calling thread; null: there is none.
    static LoopRecorder* of_this_thread();

    /// Seconds that the calling thread had a core so far.
    static double seconds_on_core();

    /// The loops since the last call.
    std::vector<RecordedLoop> take();

    /// Runs and records a loop, for the pool.
    void run(std::int64_t blocks, FunctionRef<void(std::int64_t block, int worker)> body);

    /// Blocks that wait for one another call these. reached(): a counter has now reached a value. awaits():
    /// the block goes on once a counter has at least a value; others may make its last `steps` steps in
    /// another order. Counters begin at 0, which nobody waits for. A counter that falls begins anew.
    void reached(const void* counter, std::int64_t value);
    void awaits(const void* counter, std::int64_t least, std::int64_t steps = 1);

  private:
    /// Remarks of a block, kept as they are until the loop is over, so that blocks take no longer.
    struct Said {
        const void* counter = nullptr;
        std::int64_t value = 0, block = 0;
        std::int64_t steps = 0;  ///< that are awaited; 0: it is reached
    };
    static std::vector<RecordedLoop::Wait> waits_in(const std::vector<Said>& said);

    std::vector<RecordedLoop> loops_;
    std::vector<std::vector<Said>> said_;  // by loop
    std::int64_t block_ = 0;               // that runs
};

}  // namespace mantissa
