// The thread pool: hands out the blocks of one loop at a time to a fixed set of threads.
//
// The caller cuts work into blocks, by shapes and never by the number of threads: then the result has the
// same bits whichever thread computes a block.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "mantissa/base/function_ref.h"

namespace mantissa::inline v0 {

/// How many threads to use by default: OMP_NUM_THREADS if set, else as many as the affinity mask and the
/// control group's CPU quota allow. Throws UserError if OMP_NUM_THREADS is no positive number.
int default_thread_count();

/// Cores that the affinity mask and the control group's CPU quota allow.
int available_cores();

class ThreadPool {
  public:
    using Body = FunctionRef<void(std::int64_t block, int worker)>;

    /// `threads` counts the calling thread, so 1 starts none. At most `cores` of them run at once; the others
    /// sleep.
    explicit ThreadPool(int threads = default_thread_count(), int cores = available_cores());
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const;

    /// Calls `body(block, worker)` once for every block in [0, blocks), 0 <= worker < threads(), and returns
    /// when all are done, whether or not every thread took part. A thread without a core holds nobody up.
    /// Blocks are taken in order by whichever thread is free, several at once where they are many. Subnormals
    /// are flushed inside. The first exception that a body throws is thrown again here. A loop inside a body
    /// runs on its own thread.
    void for_each_block(std::int64_t blocks, Body body);
    /// A loop of blocks that may wait for blocks before them. They are taken one at a time: in a batch, the
    /// last block would keep its readers waiting, though nobody has begun it.
    void for_each_in_turn(std::int64_t blocks, Body body);

    /// Blocks that a thread takes at a time from a loop, not in turn, that so many threads share.
    static std::int64_t blocks_a_ticket(std::int64_t blocks, int threads);

    /// One thread's part of one loop, from its first block to the end of its last.
    struct Work {
        int worker = 0;
        std::int64_t blocks = 0;
        std::chrono::steady_clock::time_point begin, end;
    };
    /// Whether every thread's work is recorded. At first it is not, which costs a loop one comparison a
    /// thread.
    void record(bool on);
    /// Everything that was recorded since the last call: by worker, and in the order of time for each.
    std::vector<Work> take_record();

  private:
    struct State;
    void run(std::int64_t blocks, std::int64_t blocks_of_ticket, Body body);

    std::unique_ptr<State> state_;
};

/// While alive, this thread flushes subnormal results to zero and reads subnormal operands as zero.
/// Without it, one assist per subnormal makes kernels with an exponential several times slower.
class FlushSubnormals {
  public:
    FlushSubnormals();
    ~FlushSubnormals();
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;

  private:
    unsigned saved_;
};

}  // namespace mantissa
