// Who touched which byte, to find races: two threads at the same bytes, at least one of which writes, with
// nothing that orders them. Within a block a barrier orders, within a warp bar.warp.sync; blocks of a launch
// nothing does. Atomic and volatile accesses race with plain ones alone.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/emulated_gpu/device_memory.h"

namespace mantissa::inline v0::cuda::ptx {

enum class Touch : std::uint8_t {
    read,
    read_only,  ///< through the cache of what no thread of the launch writes: ld.global.nc
    write,
    atomic,       ///< reads and writes in one
    strong_read,  ///< volatile or relaxed: may meet atomics
};

/// Within one block: by four bytes, what happened since the last barrier.
class BlockAccesses {
  public:
    struct Who {
        int thread = 0;                   ///< in the block
        std::uint32_t warp_interval = 0;  ///< counts bar.warp.sync
    };
    /// Notes an access of one thread, of at most four bytes that lie in four aligned ones. Gives the other
    /// thread that it races with; -1 if there is none. `key`: the address divided by four, and where it is.
    int note(std::uint64_t key, unsigned byte_mask, Touch touch, const Who& who);
    /// A barrier of the whole block.
    void next_interval() {
        ++interval_;
        held_ = 0;
    }

  private:
    struct Entry {
        std::uint64_t key = 0;
        std::uint32_t interval = 0;
        std::uint32_t warp_interval = 0;
        // By byte: 0 nobody; else the thread plus 1, with the highest bit if atomically; `several` of reads.
        std::uint16_t writer[4] = {};
        std::uint16_t reader[4] = {};
    };
    Entry& entry(std::uint64_t key);
    void make_room();

    std::vector<Entry> table_ = std::vector<Entry>(1 << 12);
    std::size_t held_ = 0;
    std::uint32_t interval_ = 1;
};

/// Notes on global memory between the blocks of a launch.
struct BlockOfLaunch {
    std::uint32_t launch = 0;  ///< its number, 24 bits of it
    std::uint32_t block = 0;   ///< in the grid, 32 bits
};

enum class Clash { none, write, read, read_only };

/// Notes an access to aligned four bytes. Gives what it clashes with: another block's write or read, or that
/// memory which somebody writes is read as read-only. `other`: that block.
Clash note_between_blocks(AccessCells& cells, unsigned byte_mask, Touch touch, const BlockOfLaunch& who,
                          std::uint32_t& other);

}  // namespace mantissa::cuda::ptx
