// A GPU in software that judges: an emulated driver behind the same table, which executes the text of PTX
// modules. It is right, strict and late: what a launch does wrong comes back as the driver would answer, with
// words that name kernel, line and thread; work on a stream runs when somebody waits for it and not before.
// For tests; no time measured over it means anything. docs/gpu.md says what is emulated and what is judged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/cuda/nccl.h"

namespace mantissa::inline v0::cuda {

struct EmulatedGpuOptions {
    std::string architecture = "sm_80";
    std::int64_t memory = 0;  ///< bytes; 0: what the architecture's first card has
    bool races = true;        ///< whether races are looked for
    /// Runs of each grid only the first, the middle and the last block; no library's work is done, and all
    /// memory counts as written, beginning as zeros: for plans whose steps would take hours. Counts mean
    /// something, numbers do not.
    bool sampled = false;
    int threads = 0;  ///< that run blocks; 0: as many as the machine is to use
    /// The most instructions of a warp's lanes in one launch, after which it is given up: minutes.
    std::int64_t max_instructions = std::int64_t{1} << 33;
    std::string failing = {};       ///< a function of the driver that is to fail, as "cuLaunchKernel"
    std::int64_t failing_call = 0;  ///< which call of it, from 1
    /// At most so many does its cuBLASLt offer for a product, up to three. One is never timed.
    int algorithms = 1;
};

/// "sm_90a", then what is otherwise: "sm_80,memory=2G,races=off,threads=1,fail=cuLaunchKernel:100". Throws
/// UserError that says what is known.
EmulatedGpuOptions parse_emulated_gpu(std::string_view text);

/// The sectors of 32 bytes in global memory that blocks of a launch touch.
struct BlockTraffic {
    std::uint32_t block = 0;
    std::uint64_t loads = 0, stores = 0;   ///< of each instruction of a warp
    std::uint64_t loaded = 0, stored = 0;  ///< different ones of the whole block
};

struct LaunchCount {
    std::string kernel;
    std::uint64_t blocks = 0;
    int threads = 0;  ///< of a block
    std::uint64_t lane_instructions = 0;
    std::uint64_t flops = 0;            ///< of FP16 to FP64; a fused multiply-add is two
    std::vector<BlockTraffic> traffic;  ///< of the first, the middle and the last block
};

class EmulatedGpu {
  public:
    /// Throws UserError for an architecture that is not known.
    explicit EmulatedGpu(const EmulatedGpuOptions& options);

    /// Its driver, which keeps it.
    Driver driver() const;
    /// Its cuBLASLt and its cuDNN, which keep it, too.
    CublasLt cublaslt() const;
    Cudnn cudnn() const;
    /// Its NCCL, likewise: between emulated GPUs of this machine.
    Nccl nccl() const;

    /// The last fault, in words; empty if there was none.
    std::string report() const;

    /// Whether launches are counted from now on.
    void count(bool on);
    /// Everything that was counted since the last call, in the order in which it ran.
    std::vector<LaunchCount> take_counts();

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace mantissa::cuda
