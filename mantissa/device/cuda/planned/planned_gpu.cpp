#include "mantissa/device/cuda/planned/planned_gpu.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

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

namespace {

/// The first questions of a device: facts, streams that stay empty, and the host's memory for reports.
void fill_answers(Driver& driver, const Architecture& gpu) {
    driver.device_get_name = [&gpu](char* name, int length, Device) {
        if (length < 1) return Result::invalid_value;
        name[fmt::format("{} on paper", gpu.card).copy(name, static_cast<std::size_t>(length) - 1)] = 0;
        return Result::success;
    };
    driver.device_get_attribute = [&gpu](int* value, DeviceAttribute attribute, Device) {
        const std::optional<int> known = attribute_of(gpu, attribute);
        if (known) *value = *known;
        return known ? Result::success : Result::invalid_value;
    };
    driver.mem_get_info = [&gpu](std::size_t* free, std::size_t* total) {
        *free = *total = static_cast<std::size_t>(gpu.memory);
        return Result::success;
    };
    driver.mem_alloc_host = [](void** address, std::size_t bytes) {
        *address = ::operator new(bytes);
        return Result::success;
    };
    driver.mem_free_host = [](void* address) {
        ::operator delete(address);
        return Result::success;
    };
}

/// Takes every product, by one algorithm that needs no memory.
CublasLt willing_cublaslt() {
    CublasLt table;
    for_each_blas_function(table, []<class Returned, class... Arguments>(
                                      std::function<Returned(Arguments...)>& member, const char*) {
        member = [](Arguments...) { return Returned(); };
    });
    table.matmul_algo_get_heuristic = [](BlasHandle, MatmulDescription, MatrixLayout, MatrixLayout,
                                         MatrixLayout, MatrixLayout, MatmulPreference, int,
                                         MatmulHeuristic* results, int* found) {
        results[0] = {};
        *found = 1;
        return BlasStatus::success;
    };
    table.name = "cuBLASLt on paper";
    return table;
}

/// Takes every convolution, by one engine that needs no memory and has no notes.
Cudnn willing_cudnn() {
    Cudnn table;
    for_each_dnn_function(table, []<class Returned, class... Arguments>(
                                     std::function<Returned(Arguments...)>& member, const char*) {
        member = [](Arguments...) { return Returned(); };
    });
    table.get_attribute = [](DnnDescriptor, DnnAttribute attribute, DnnAttributeType type, std::int64_t,
                             std::int64_t* count, void* elements) {
        *count = attribute == DnnAttribute::engine_notes ? 0 : 1;
        if (type == DnnAttributeType::int64) *static_cast<std::int64_t*>(elements) = 0;
        return DnnStatus::success;
    };
    table.name = "cuDNN on paper";
    return table;
}

}  // namespace

Libraries planned_libraries(const std::string& architecture) {
    const Architecture& gpu = known_architecture(architecture);
    Libraries made{.driver = {}, .blas = willing_cublaslt(), .dnn = willing_cudnn()};
    for_each_function(made.driver, [](auto& member, std::string_view symbol) {
        const bool runs = symbol == "cuLaunchKernel" || symbol == "cuGraphLaunch" ||
                          symbol.starts_with("cuModule") || symbol.starts_with("cuMemcpy");
        member = [runs](auto&&...) { return runs ? Result::no_device : Result::success; };
    });
    fill_answers(made.driver, gpu);
    made.driver.name = "on paper";
    return made;
}

}  // namespace mantissa::cuda
