// A block of a GPU's threads on one thread of the CPU: each runs until it waits for the others, then the next
// does. What NVPTX's special registers, barrier and shuffle are there becomes calls of these functions.
#pragma once

#include <cstdint>
#include <functional>

namespace mantissa::testing {

// The numbers of the thread that runs.
std::int32_t ptx_thread();
std::int32_t ptx_block();
void ptx_barrier();
/// What the thread of the same warp holds whose number differs in the bits of `distance`.
float ptx_shuffle(std::int32_t members, float value, std::int32_t distance, std::int32_t clamp);

/// Runs `body` once for each thread of each block, one block after another. Throws InternalError if some
/// threads of a block wait where others do not: on a GPU they would wait for ever.
void run_blocks(std::int64_t blocks, int threads, const std::function<void()>& body);

}  // namespace mantissa::testing
