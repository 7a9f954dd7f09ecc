#include "tests/emulated_gpu/launch.h"

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

namespace mantissa::inline v0::cuda::ptx {

namespace {

/// While alive this thread's arithmetic is IEEE 754's: to nearest, subnormals kept, which the pool's threads
/// flush.
class PlainArithmetic {
  public:
    PlainArithmetic() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~PlainArithmetic() { _mm_setcsr(before_); }
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;

  private:
    unsigned before_;
};

/// The faults that the blocks of a launch found, from whichever thread.
struct Findings {
    std::mutex mutex;
    std::optional<Fault> fault;
    std::atomic<std::uint32_t> first_fault = ~0u;

    void note(const Fault& found) {
        const std::lock_guard lock(mutex);
        if (fault && fault->block <= found.block) return;
        fault = found;
        first_fault = found.block;
    }
};

void add(LaunchCount& count, Block& block) {
    for (const auto& warp : block.warps) {
        count.lane_instructions += warp->lane_instructions;
        count.flops += warp->flops;
    }
    if (!block.counted) return;
    BlockTraffic traffic{
        .block = block.index, .loads = block.sectors.requested[0], .stores = block.sectors.requested[1]};
    traffic.loaded = block.sectors.distinct(false);
    traffic.stored = block.sectors.distinct(true);
    count.traffic.push_back(traffic);
}

}  // namespace

void run_launch(ThreadPool& pool, const LaunchedKernel& launched, LaunchCount& count) {
    const auto blocks = static_cast<std::int64_t>(launched.grid.count());
    count.kernel = launched.kernel->name;
    count.blocks = launched.grid.count();
    count.threads = static_cast<int>(launched.block.count());
    const std::int64_t running = launched.sampled ? std::min<std::int64_t>(blocks, 3) : blocks;
    // The first, the middle and the last one where they are three.
    const auto index_of = [&](std::int64_t i) {
        return static_cast<std::uint32_t>(running == blocks ? i : i * (blocks - 1) / 2);
    };
    // A few runs of blocks a thread, each run's memory for its own.
    const std::int64_t parts = launched.kernel->adds_to_global
                                   ? 1
                                   : std::min<std::int64_t>(running, 8 * std::int64_t{pool.threads()});
    Findings findings;
    std::mutex counting;
    pool.for_each_block(parts, [&](std::int64_t part, int) {
        const PlainArithmetic plain;
        Block block;
        for (std::int64_t i = running * part / parts; i < running * (part + 1) / parts; ++i) {
            const std::uint32_t index = index_of(i);
            if (index > findings.first_fault) return;
            try {
                block.run(launched, index);
            } catch (const Fault& fault) {
                findings.note(fault);
                return;
            }
            if (!launched.counted) continue;
            const std::lock_guard lock(counting);
            add(count, block);
        }
    });
    if (findings.fault) throw *findings.fault;
    std::sort(count.traffic.begin(), count.traffic.end(),
              [](const BlockTraffic& x, const BlockTraffic& y) { return x.block < y.block; });
}

}  // namespace mantissa::cuda::ptx
