// The GPUs that can be emulated: what their drivers say of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::inline v0::cuda {

struct Architecture {
    std::string name;  ///< "sm_90a"
    int number = 0;    ///< 90
    bool own = false;  ///< has what only this architecture has: the "a" of its name
    std::string card;  ///< the first of this architecture, for which the figures are
    int multiprocessors = 0;
    std::int64_t memory = 0;                                  ///< bytes
    int shared_per_multiprocessor = 0, shared_per_block = 0;  ///< bytes, the latter if asked for
    int threads_per_multiprocessor = 0, blocks_per_multiprocessor = 0;
    int clock = 0, memory_clock = 0;  ///< kHz
    int memory_bus = 0;               ///< bits
    int l2_bytes = 0;
};

const std::vector<Architecture>& architectures();

/// The architecture of the name; null if it is not known.
const Architecture* find_architecture(const std::string& name);

/// Why code for `target` does not run on the GPU; empty if it does.
std::string target_refusal(const std::string& target, const Architecture& gpu);

}  // namespace mantissa::cuda
