// How kernels, copies and zeros are queued.
#include <algorithm>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/device/cuda/kernels/kernels.h"

namespace mantissa::inline v0::on_cuda {

std::int32_t Context::report(const std::string& text) {
    const auto known = std::ranges::find(reports, text);
    if (known == reports.end()) {
        reports.push_back(text);
        return static_cast<std::int32_t>(reports.size());
    }
    return static_cast<std::int32_t>(known - reports.begin()) + 1;
}

cuda::DevicePtr address_of(const std::byte* pointer) { return reinterpret_cast<cuda::DevicePtr>(pointer); }

void launch(const Context& context, const GpuKernel& kernel, std::int64_t blocks,
            std::vector<std::uint64_t> parameters, int threads) {
    if (blocks == 0) return;
    check(kernel.function != nullptr, "kernels are loaded before they are launched");
    if (blocks > std::numeric_limits<std::int32_t>::max())
        throw UserError("a tensor is too large for one launch of " + kernel.name);
    std::vector<void*> places;
    for (std::uint64_t& parameter : parameters) places.push_back(&parameter);
    const cuda::Result result = context.driver.launch_kernel(kernel.function, static_cast<unsigned>(blocks),
                                                             1, 1, static_cast<unsigned>(threads), 1, 1, 0,
                                                             context.work, places.data(), nullptr);
    require(context.driver, result, "launching " + kernel.name);
}

void launch_reporting(const Context& context, const GpuKernel& kernel, std::int64_t blocks,
                      std::vector<std::uint64_t> parameters) {
    if (blocks == 0) return;
    parameters.push_back(context.report_on_device);
    launch(context, kernel, blocks, std::move(parameters));
    require(context.driver,
            context.driver.memcpy_dtoh_async(context.report_on_host, context.report_on_device,
                                             2 * sizeof(std::int32_t), context.work),
            "a kernel's report");
}

void queue_copy(const Context& context, std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 0) return;
    require(context.driver,
            context.driver.memcpy_dtod_async(address_of(to), address_of(from), bytes, context.work),
            "a copy within the GPU's memory");
}

void queue_zeros(const Context& context, std::byte* to, std::size_t bytes) {
    if (bytes == 0) return;
    require(context.driver, context.driver.memset_d8_async(address_of(to), 0, bytes, context.work),
            "zeros in the GPU's memory");
}

}  // namespace mantissa::on_cuda
