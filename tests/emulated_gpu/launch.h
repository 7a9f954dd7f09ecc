// One launch: its blocks on the threads of the machine.
#pragma once

#include "mantissa/base/thread_pool.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

/// Throws the Fault of the first block that has one. Kernels that add atomically to global memory run one
/// block after the other, so that their sums have the same bits every time. Fills `count` where the launch is
/// counted.
void run_launch(ThreadPool& pool, const LaunchedKernel& launched, LaunchCount& count);

}  // namespace mantissa::cuda::ptx
