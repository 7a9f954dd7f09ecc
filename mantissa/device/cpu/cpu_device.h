// The CPU as a device: memory is the host's, programs run at once on the thread pool.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class Ranks;

struct CpuOptions {
    int threads = 0;  ///< 0: as many as the affinity mask, the CPU quota and OMP_NUM_THREADS allow
    /// The ranks that it belongs to, and sums over, which must outlive it. Null: there are none.
    Ranks* ranks = nullptr;
    /// Threads that contractions are cut for; 0: as many as exist. Another number is for a prediction.
    int threads_to_cut_for = 0;
    /// The folder of compiled kernels, none if it is empty; unset: in `cache_folder()`.
    std::optional<std::filesystem::path> kernels = {};
};

/// Uses the instruction set that MANTISSA_ISA names, else the best that the CPU has. Throws UserError if it
/// names one that the CPU lacks, or if threads is negative.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace mantissa
