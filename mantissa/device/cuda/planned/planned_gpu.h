// GPUs that are not there, to plan for: their drivers' answers, and a cuBLASLt and a cuDNN that take
// everything. Nothing runs on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/cuda/libraries.h"

namespace mantissa::inline v0::cuda {

inline constexpr std::int64_t shared_without_asking = 48 * 1024;
/// The shared memory that the driver takes of each block for itself.
inline constexpr std::int64_t reserved_shared = 1024;

struct Architecture {
    std::string name;  ///< "sm_90a"
    int number = 0;    ///< 90
    bool own = false;  ///< has the features of this architecture alone: the "a" of its name
    std::string card;  ///< the first card of this architecture; the figures are its own
    int multiprocessors = 0;
    std::int64_t memory = 0;                                  ///< bytes
    int shared_per_multiprocessor = 0, shared_per_block = 0;  ///< bytes, the latter if asked for
    int threads_per_multiprocessor = 0, blocks_per_multiprocessor = 0;
    int clock = 0, memory_clock = 0;  ///< kHz
    int memory_bus = 0;               ///< bits
    int l2_bytes = 0;
};

const std::vector<Architecture>& architectures();

/// The architecture of that name; null for an unknown one.
const Architecture* find_architecture(const std::string& name);

/// As find_architecture; throws UserError, which names the known ones, for any other.
const Architecture& known_architecture(const std::string& name);

/// The driver's answers about the GPU; none for unknown attributes.
std::optional<int> attribute_of(const Architecture& gpu, DeviceAttribute attribute);

/// Throws UserError for an unknown architecture.
Libraries planned_libraries(const std::string& architecture);

}  // namespace mantissa::cuda
