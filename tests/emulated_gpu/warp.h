// A warp and its block while they run.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/device/cuda/driver.h"
#include "tests/emulated_gpu/device_memory.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/program.h"

namespace mantissa::inline v0::cuda::ptx {

/// The fault of a launch, as the driver answers and in words.
struct Fault {
    Result result = Result::launch_failed;
    std::string words;
    std::uint32_t block = 0;  ///< in the grid
};

struct Dimensions {
    std::uint32_t x = 1, y = 1, z = 1;
    std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct LaunchedKernel {
    const Program* program = nullptr;
    const Kernel* kernel = nullptr;
    Dimensions grid, block;
    std::int64_t dynamic_shared = 0;
    std::vector<std::byte> parameters = {};
    const DeviceMemory* memory = nullptr;
    std::uint32_t number = 0;  ///< of the launch
    bool races = true;
    bool sampled = false;               ///< EmulatedGpuOptions'
    std::int64_t max_instructions = 0;  ///< of a warp's lanes
    bool counted = false;
};

struct Block;

/// Lanes at one place of the code.
struct LaneGroup {
    std::uint32_t pc = 0;
    std::uint32_t lanes = 0;
    std::uint32_t needed = 0;  ///< the lanes that must come there before it goes on; 0: it can run
};

/// A cp.async that is under way: it happens when it is waited for.
struct PendingCopy {
    int lane = 0;
    std::uint32_t group = 0;
    std::uint64_t to = 0;  ///< in shared memory
    const std::byte* from = nullptr;
    std::int64_t bytes = 0, copied = 0;  ///< behind those copied there are zeros
};

/// A wgmma.mma_async that is under way. Its sums are made at once, and nobody may see them before they are
/// waited for, nor change what it reads.
struct PendingProduct {
    std::uint32_t group = 0;
    std::vector<Place> sums, left;
    std::vector<std::uint32_t> pieces;  ///< of shared memory, 16 bytes each
};

struct Warp {
    enum class State { runs, at_barrier, done };

    void begin(Block& of, int its_number);
    /// Until it waits for others of the block, or is done, or has had its turn.
    void run();

    std::byte* at(Place place) { return bases[place.base] + place.offset; }
    template <class T>
    T lane_of(Place place, int lane) {
        T value;
        std::memcpy(&value, at(place) + sizeof(T) * static_cast<std::size_t>(lane), sizeof value);
        return value;
    }
    std::uint32_t predicate(Place place) {
        std::uint32_t bits;
        std::memcpy(&bits, at(place), sizeof bits);
        return bits;
    }
    /// A register's number of each lane that executes.
    template <class T>
    void set(Place place, const std::array<T, warp_lanes>& values) {
        std::byte* const to = at(place);
        for (int lane = 0; lane < warp_lanes; ++lane)
            if (executing >> lane & 1)
                std::memcpy(to + sizeof(T) * static_cast<std::size_t>(lane),
                            &values[static_cast<std::size_t>(lane)], sizeof(T));
    }
    void set_predicate(Place place, std::uint32_t bits) {
        if (place.base == Place::nowhere) return;
        const std::uint32_t now = (predicate(place) & ~executing) | (bits & executing);
        std::memcpy(at(place), &now, sizeof now);
    }

    /// True if all the needed lanes execute; else those that do wait, and the instruction is done again.
    bool gather(std::uint32_t needed);
    void branch(std::uint32_t to, std::uint32_t lanes);
    void exit_lanes(std::uint32_t lanes);

    int thread(int lane) const { return number * warp_lanes + lane; }
    [[noreturn]] void fault(Result result, int lane, const std::string& what) const;

    // Memory: run_memory.cpp.
    /// The host's address of what a lane accesses, after all judgements.
    std::byte* global(std::uint64_t address, std::int64_t bytes, Touch touch, int lane);
    std::byte* shared(std::uint64_t address, std::int64_t bytes, Touch touch, int lane);
    std::byte* local_bytes(std::uint64_t address, std::int64_t bytes, bool writes, int lane);
    std::byte* parameter(std::uint64_t address, std::int64_t bytes, int lane);
    std::byte* generic(std::uint64_t address, std::int64_t bytes, Touch touch, int lane);
    void finish_copies(int lane, std::uint32_t before_group);

    // wgmma: run_warpgroup.cpp.
    /// Registers of a product under way must not be touched, except that its left operand may be read.
    void judge_products(const Instruction& instruction) const;
    void finish_products(std::uint32_t before_group);
    /// Bytes of shared memory that a thread writes must not be read by a product, and are not there for the
    /// next one before the thread's fence.proxy.async.
    void note_for_products(std::uint64_t address, std::int64_t bytes, int lane);

    Block* block = nullptr;
    const Program* program = nullptr;
    int number = 0;  ///< in the block
    std::byte* bases[4] = {};
    std::vector<std::byte> registers, specials, local, local_written, nothing;
    std::uint32_t exists = 0, exited = 0;
    std::uint32_t pc = 0, active = 0, executing = 0;
    std::vector<LaneGroup> parked;  ///< other groups than the one that runs
    State state = State::done;
    int barrier = 0;
    std::uint32_t warp_interval = 0;
    std::array<const Allocation*, 16> hints = {};
    std::vector<PendingCopy> copies;
    std::array<std::uint32_t, warp_lanes> copy_groups = {};
    std::uint64_t lane_instructions = 0, flops = 0;
    std::vector<PendingProduct> products;
    std::uint32_t product_group = 0;
    std::size_t issued_products = 0;
    std::vector<std::byte> fenced;  ///< the registers at the last wgmma.fence; empty: there was none

  private:
    bool pick_group();
    void join_groups();
};

struct Barrier {
    std::uint32_t arrived = 0, expected = 0;
    std::uint32_t count = 0, all = ~0u, any = 0;  ///< of bar.red
    std::vector<std::pair<Warp*, const Instruction*>> reductions;
};

/// Bytes of global memory, in sectors of 32.
struct SectorCounter {
    void note(const std::uint64_t* addresses, int count, std::int64_t bytes, bool writes);
    std::uint64_t requested[2] = {0, 0};  ///< loads, stores: each sector once an instruction of a warp
    std::vector<std::uint64_t> seen[2];
    std::uint64_t distinct(bool writes);
};

/// Facts that products of warpgroups have to know of their block.
struct WarpgroupFacts {
    struct Product {
        std::uint32_t pc = 0;
        std::uint64_t left = 0, right = 0;  ///< descriptors
    };
    struct Write {
        int thread = -1;
        std::uint32_t fences = 0;  ///< of the thread before it
    };
    std::vector<std::vector<Product>> issued;  ///< by warpgroup: each of its warps must issue the same
    std::vector<std::uint16_t> readers;        ///< by 16 bytes of shared memory
    std::vector<Write> writes;                 ///< by two bytes: the last
    std::vector<std::uint32_t> fences;         ///< by thread
};

struct Block {
    /// Runs one block of a launch. Throws Fault.
    void run(const LaunchedKernel& launched, std::uint32_t index);
    void arrive(Warp& warp, int barrier, std::uint32_t threads, bool waits);

    const LaunchedKernel* launch = nullptr;
    std::uint32_t index = 0;
    Dimensions place;
    std::vector<std::byte> shared_bytes;
    std::vector<std::uint8_t> shared_written;  ///< 0 never, byte_written, or `under_way`
    BlockAccesses accesses;
    std::vector<std::unique_ptr<Warp>> warps;
    std::array<Barrier, 16> barriers;
    WarpgroupFacts of_warpgroups;
    bool counted = false;
    SectorCounter sectors;

  private:
    void begin_warpgroups();
    void judge_warpgroups() const;
    [[noreturn]] void stuck() const;
};

/// Bytes that a cp.async will write.
constexpr std::uint8_t under_way = 1;

}  // namespace mantissa::cuda::ptx
