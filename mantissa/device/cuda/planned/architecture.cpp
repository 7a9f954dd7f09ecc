#include "mantissa/device/cuda/planned/architecture.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/base/error.h"

namespace mantissa::inline v0::cuda {

const std::vector<Architecture>& architectures() {
    constexpr std::int64_t gib = std::int64_t{1} << 30;
    constexpr int kib = 1024, mib = 1024 * 1024;
    // CUDA C++ Programming Guide, table of compute capabilities; the cards' data sheets.
    static const std::vector<Architecture> all{{"sm_80", 80, false, "A100", 108, 40 * gib, 164 * kib,
                                                163 * kib, 2048, 32, 1'410'000, 1'215'000, 5120, 40 * mib},
                                               {"sm_86", 86, false, "A40", 84, 48 * gib, 100 * kib, 99 * kib,
                                                1536, 16, 1'740'000, 7'251'000, 384, 6 * mib},
                                               {"sm_89", 89, false, "L40", 142, 48 * gib, 100 * kib, 99 * kib,
                                                1536, 24, 2'490'000, 9'001'000, 384, 96 * mib},
                                               {"sm_90", 90, false, "H100", 132, 80 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'980'000, 2'619'000, 5120, 50 * mib},
                                               {"sm_90a", 90, true, "H100", 132, 80 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'980'000, 2'619'000, 5120, 50 * mib},
                                               {"sm_100", 100, false, "B200", 148, 180 * gib, 228 * kib,
                                                227 * kib, 2048, 32, 1'965'000, 3'996'000, 8192, 126 * mib}};
    return all;
}

const Architecture* find_architecture(const std::string& name) {
    for (const Architecture& one : architectures())
        if (one.name == name) return &one;
    return nullptr;
}

const Architecture& known_architecture(const std::string& name) {
    if (const Architecture* const found = find_architecture(name)) return *found;
    std::string known;
    for (const Architecture& one : architectures()) known += (known.empty() ? "" : ", ") + one.name;
    throw UserError(fmt::format("no GPU '{}' is known; known are {}", name, known));
}

std::optional<int> attribute_of(const Architecture& gpu, DeviceAttribute attribute) {
    constexpr int warp_lanes = 32;
    const std::map<DeviceAttribute, int> all{
        {DeviceAttribute::max_threads_per_block, 1024},
        {DeviceAttribute::max_shared_memory_per_block, static_cast<int>(shared_without_asking)},
        {DeviceAttribute::warp_size, warp_lanes},
        {DeviceAttribute::max_registers_per_block, 65536},
        {DeviceAttribute::clock_rate, gpu.clock},
        {DeviceAttribute::multiprocessor_count, gpu.multiprocessors},
        {DeviceAttribute::memory_clock_rate, gpu.memory_clock},
        {DeviceAttribute::global_memory_bus_width, gpu.memory_bus},
        {DeviceAttribute::l2_cache_size, gpu.l2_bytes},
        {DeviceAttribute::max_threads_per_multiprocessor, gpu.threads_per_multiprocessor},
        {DeviceAttribute::compute_capability_major, gpu.number / 10},
        {DeviceAttribute::compute_capability_minor, gpu.number % 10},
        {DeviceAttribute::max_shared_memory_per_multiprocessor, gpu.shared_per_multiprocessor},
        {DeviceAttribute::max_registers_per_multiprocessor, 65536},
        {DeviceAttribute::max_shared_memory_per_block_optin, gpu.shared_per_block},
        {DeviceAttribute::max_blocks_per_multiprocessor, gpu.blocks_per_multiprocessor},
        {DeviceAttribute::reserved_shared_memory_per_block, static_cast<int>(reserved_shared)}};
    const auto found = all.find(attribute);
    return found == all.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace mantissa::cuda
