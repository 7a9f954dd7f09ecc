// The ranks that train one model, as a GPU sees them. NCCL offers here for the GPU's memory, as MPI's plug-in
// for the host's (ranks/mpi_plugin.h): rank, ranks, exchange, abort, and an end. It runs beside the ranks'
// own connection, over which they agree on everything else.
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
    /// Queues, on `stream()`: sends[r] go to rank r and receives[r] are filled with r's bytes, for all r at a
    /// time. A rank's places for itself are empty. Both ends agree on the sizes.
    void exchange(const Places& sends, const Places& receives);
    void abort() noexcept;

    /// Whether this rank takes a step that the others do not take: then nothing is exchanged.
    bool is_alone() const;
    cuda::Stream stream() const { return stream_; }

    /// An exchange as this sum begins behind the work that `work` has so far; wait() lets `work` wait for it.
    void begin_behind(cuda::Stream work, int sum);
    void end(int sum);
    void wait(cuda::Stream work, int sum);

    /// Room for received bytes, used by one exchange after the other. `allocate`, which is called before work
    /// is queued, makes as much as was ever asked for.
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
