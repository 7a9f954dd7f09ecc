#include "mantissa/device/cuda/planned/planned_gpu.h"

#include <fmt/format.h>

#include <string_view>

#include "mantissa/device/cuda/planned/architecture.h"

namespace mantissa::inline v0::cuda {

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

/// Takes every convolution, by one engine that needs no memory, and of which there are no notes.
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
