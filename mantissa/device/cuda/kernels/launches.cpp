// The queueing of kernels, copies and zeros.
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

namespace {

/// A number of blocks and threads, and where they are.
struct Grid {
    std::int64_t blocks = 0;
    int threads = codegen::grid_threads;
    cuda::Stream stream = nullptr;
};

void launch_with_table(const Context& context, const GpuKernel& kernel, const Grid& grid,
                       std::vector<std::uint64_t> table, std::vector<std::uint64_t> parameters) {
    const std::int64_t blocks = grid.blocks;
    if (blocks == 0) return;
    check(kernel.function != nullptr, "kernels are loaded before they are launched");
    if (blocks > std::numeric_limits<std::int32_t>::max())
        throw UserError("a tensor is too large for one launch of " + kernel.name);
    std::vector<void*> places;
    if (!table.empty()) places.push_back(table.data());
    for (std::uint64_t& parameter : parameters) places.push_back(&parameter);
    const cuda::Result result = context.driver.launch_kernel(kernel.function, static_cast<unsigned>(blocks),
                                                             1, 1, static_cast<unsigned>(grid.threads), 1, 1,
                                                             0, grid.stream, places.data(), nullptr);
    require(context.driver, result, "launching " + kernel.name);
}

}  // namespace

SizedKernel add_sized(Context& context, codegen::GridKernel kernel) {
    const std::int64_t blocks = codegen::blocks_of(kernel);
    return {context.modules.add(std::move(kernel)), blocks};
}

Launch launch_of(const Context& context, SizedKernel kernel) {
    return [&context, kernel = std::move(kernel)](const Operands& operands) {
        std::vector<std::uint64_t> addresses;
        for (const std::byte* input : operands.inputs) addresses.push_back(address_of(input));
        for (const std::byte* output : operands.outputs) addresses.push_back(address_of(output));
        launch(context, *kernel.kernel, kernel.blocks, std::move(addresses));
    };
}

void launch(const Context& context, const GpuKernel& kernel, std::int64_t blocks,
            std::vector<std::uint64_t> parameters, int threads) {
    launch_with_table(context, kernel, {blocks, threads, context.work}, {}, std::move(parameters));
}

void launch_on(const Context& context, cuda::Stream stream, const GpuKernel& kernel, std::int64_t blocks,
               std::vector<std::uint64_t> parameters) {
    launch_with_table(context, kernel, {.blocks = blocks, .stream = stream}, {}, std::move(parameters));
}

void launch_parts(const Context& context, const GpuKernel& kernel, const codegen::PartTable& table,
                  std::span<const Part> parts, const std::vector<std::uint64_t>& parameters) {
    const auto of_launch = static_cast<std::size_t>(table.parts);
    for (; !parts.empty(); parts = parts.subspan(std::min(of_launch, parts.size()))) {
        std::vector<std::uint64_t> numbers;
        std::int64_t blocks = 0;
        for (std::size_t i = 0; i < of_launch; ++i) {
            const bool is_there = i < parts.size();
            numbers.push_back(static_cast<std::uint64_t>(is_there ? blocks : codegen::no_block));
            if (is_there) {
                numbers.insert(numbers.end(), parts[i].words.begin(), parts[i].words.end());
                blocks += parts[i].blocks;
            }
            check(
                static_cast<std::int64_t>(is_there ? parts[i].words.size() + 1 : table.words) == table.words,
                "a part has as many numbers as its table says");
            numbers.resize((i + 1) * static_cast<std::size_t>(table.words));
        }
        launch_with_table(context, kernel, {.blocks = blocks, .stream = context.work}, std::move(numbers),
                          parameters);
    }
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
