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

}  // namespace

Libraries planned_libraries(const std::string& architecture) {
    const Architecture& gpu = known_architecture(architecture);
    Libraries made{
        .driver = {},
        .blas = make_planned_cublaslt([](Stream, const MatmulJob&) { return Result::no_device; }),
        .dnn = make_planned_cudnn([](Stream, const ConvolutionJob&) { return Result::no_device; })};
    for_each_function(made.driver, [](auto& member, std::string_view symbol) {
        const bool runs = symbol == "cuLaunchKernel" || symbol == "cuGraphLaunch" ||
                          symbol.starts_with("cuModule") || symbol.starts_with("cuMemcpy");
        member = [runs](auto&&...) { return runs ? Result::no_device : Result::success; };
    });
    fill_answers(made.driver, gpu);
    made.driver.name = "on paper";
    made.blas.name = "cuBLASLt on paper";
    (*made.dnn).name = "cuDNN on paper";
    return made;
}

}  // namespace mantissa::cuda
