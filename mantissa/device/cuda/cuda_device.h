// An NVIDIA GPU as a device, by its driver and cuBLASLt: memory is the GPU's, a program one graph of launches
// and copies, and queued work runs while the host goes on. Kernels are compiled when a plan is finished.
#pragma once

#include <filesystem>
#include <memory>

#include "mantissa/base/expected.h"
#include "mantissa/device/cuda/libraries.h"
#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class Ranks;

struct CudaOptions {
    std::filesystem::path kernels = {};  ///< the folder of compiled kernels; empty: none
    /// The file of cuBLASLt's quickest algorithms; empty: none.
    std::filesystem::path algorithms = {};
    /// The ranks that it belongs to, and sums over by NCCL, which must outlive it. Null: there are none.
    Ranks* ranks = nullptr;
    /// Attention multiplies by Hopper's own instructions (wgmma) where the GPU has them, compute capability
    /// 9.0. They never ran on a card, so nothing but checks and benchmarks asks for them.
    bool warpgroup_attention = false;
    /// Products by cuBLASLt's best, as its own heuristic has it: nothing is timed.
    bool first_algorithms = false;
    /// Chunks of rows of the fused linear cross-entropy: with four, logits take a fourth of their whole
    /// memory. Each chunk reads and writes dw once more, which at GPT-2's 50,304 classes is as much as a
    /// quarter of its logits in BF16 at 16,384 rows, read or written.
    std::int64_t loss_chunks = 4;
};

/// The first GPU; ranks that share a host have one each. Or one line that names the missing driver, cuBLASLt,
/// NCCL, version, architecture or compiler. Throws UserError where the driver fails. Compiled kernels are
/// kept in the folder kernels of `cache_folder()`, and cuBLASLt's algorithms that were timed as the quickest
/// in the file algorithms there.
Expected<std::unique_ptr<Device>> make_cuda_device(Ranks* ranks = nullptr);

/// The GPU of these libraries, which have NCCL where there are ranks.
Expected<std::unique_ptr<Device>> make_cuda_device(cuda::Libraries libraries,
                                                   const CudaOptions& options = {});

}  // namespace mantissa
