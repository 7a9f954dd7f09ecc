// An NVIDIA GPU as a device, by its driver and cuBLASLt: memory is the GPU's, a program one graph of launches
// and copies, and what is queued runs while the host goes on. Kernels are compiled when a plan is finished.
#pragma once

#include <filesystem>
#include <memory>

#include "mantissa/base/expected.h"
#include "mantissa/device/cuda/libraries.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class Ranks;

struct CudaOptions {
    std::filesystem::path kernels = {};  ///< where compiled ones are kept; empty: nowhere
    /// The file that keeps which of cuBLASLt's algorithms were the quickest; empty: none.
    std::filesystem::path algorithms = {};
    /// Those among which it is one, which must outlive it: over them it sums, by NCCL. Null: it is the only
    /// one.
    Ranks* ranks = nullptr;
    /// Attention multiplies by Hopper's own instructions (wgmma) where the GPU has them, compute capability
    /// 9.0. They never ran on a card, so nothing but checks and benchmarks asks for them.
    bool warpgroup_attention = false;
    /// Products by cuBLASLt's best, as its own heuristic has it: nothing is timed.
    bool first_algorithms = false;
    /// Chunks of rows of the fused linear cross-entropy: logits take a fourth of what they would at once.
    /// Each reads and writes dw once more, which at GPT-2's 50,304 classes is as much as a quarter of its
    /// logits in BF16 at 16,384 rows, read or written.
    std::int64_t loss_chunks = 4;
};

/// The first GPU, of ranks that share a host each its own.
/// Or one line that says what is missing: the driver, cuBLASLt, NCCL, a version, an architecture, the
/// compiler. Throws UserError where the driver fails. Kernels that it compiles are kept in the folder kernels
/// of `cache_folder()`, and which of cuBLASLt's algorithms it timed as the quickest in the file algorithms
/// there.
Expected<std::unique_ptr<Device>> make_cuda_device(Ranks* ranks = nullptr);

/// The GPU of these libraries, which have NCCL where there are ranks.
Expected<std::unique_ptr<Device>> make_cuda_device(cuda::Libraries libraries,
                                                   const CudaOptions& options = {});

}  // namespace mantissa
