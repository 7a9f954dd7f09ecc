// The ranks that train one model, as a GPU sees them: what MPI's plug-in offers of the host's memory
// (ranks/mpi_plugin.h), NCCL offers here of the GPU's: rank, ranks, exchange, abort, and an end. It runs
// beside the ranks' own connection, over which they agree on everything else.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/cuda/nccl.h"

namespace mantissa::inline v0 {

class Ranks;

namespace on_cuda {

class GpuRanks {
  public:
    /// Bytes of the GPU's memory.
    struct Place {
        std::uint64_t address = 0;
        std::int64_t bytes = 0;
    };
    /// By rank, one after the other.
    using Places = std::vector<std::vector<Place>>;

    /// Meets the others, whose ranks must outlive it; the GPU's context is current.
    GpuRanks(const cuda::Driver& driver, const cuda::Nccl& nccl, Ranks& ranks);
    ~GpuRanks();
    GpuRanks(const GpuRanks&) = delete;
    GpuRanks& operator=(const GpuRanks&) = delete;

    int rank() const;
    int ranks() const;
    /// Queues, on `stream()`: sends[r] go to rank r and receives[r] are filled with what r sends, for all r
    /// at a time. What a rank would send itself is empty. Both ends agree on the sizes.
    void exchange(const Places& sends, const Places& receives);
    void abort() noexcept;

    /// Whether a look is taken that the others do not take: then nothing is exchanged.
    bool is_alone() const;
    cuda::Stream stream() const { return stream_; }

    /// Begins an exchange as this sum behind what `work` has so far, and `work` goes on when it is there.
    void begin_behind(cuda::Stream work, int sum);
    void end(int sum);
    void wait(cuda::Stream work, int sum);

    /// Room for what arrives, which one exchange after the other has: as much as was ever asked for is there
    /// after `allocate`, which is called before work is queued.
    void reserve(std::int64_t bytes);
    void allocate();
    /// 0 where nothing arrives, as at a rank without a part.
    std::uint64_t room() const { return rooms_.empty() ? 0 : rooms_.back(); }

  private:
    struct Events {
        cuda::Event begin = nullptr, end = nullptr;
    };
    Events& events_of(int sum);
    void pass(const Places& places, bool send);

    const cuda::Driver& driver_;
    const cuda::Nccl& nccl_;
    Ranks& ranks_;
    cuda::NcclComm comm_ = nullptr;
    cuda::Stream stream_ = nullptr;
    std::map<int, Events> events_;
    std::int64_t reserved_ = 0, allocated_ = 0;
    std::vector<std::uint64_t> rooms_;  // graphs keep the address that they were recorded with
};

}  // namespace on_cuda

}  // namespace mantissa
