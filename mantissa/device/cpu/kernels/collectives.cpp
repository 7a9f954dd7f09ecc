// Binds sums of gradients: additions here, and sums that travel between ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0::on_cpu {

namespace {

PreparedKernel prepare_tree_add(const Problem& problem, ThreadPool& pool) {
    const Launch launch = [count = problem.outputs[0].shape.elements(), &pool](const Operands& operands) {
        // 256 KB of each operand: enough to keep the memory busy, and a share for each of many threads.
        constexpr std::int64_t block = std::int64_t{1} << 16;
        const float *a = operands.input<float>(0), *b = operands.input<float>(1);
        float* sum = operands.output<float>(0);
        pool.for_each_block((count + block - 1) / block, [&](std::int64_t index, int) {
            const std::int64_t last = std::min(count, (index + 1) * block);
            for (std::int64_t i = index * block; i < last; ++i) sum[i] = a[i] + b[i];
        });
    };
    return {.launch = launch, .may_write_over = {{1, 0}}};
}

/// Where each output lies over its operand, as it does where nobody else reads that, nothing is copied.
std::vector<std::span<float>> copied_to_outputs(std::span<const std::int64_t> counts,
                                                const Operands& operands) {
    std::vector<std::span<float>> outputs;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto count = static_cast<std::size_t>(counts[i]);
        const float* from = operands.input<float>(i);
        float* to = operands.output<float>(i);
        if (to != from && count > 0) std::memcpy(to, from, count * sizeof(float));
        outputs.emplace_back(to, count);
    }
    return outputs;
}

enum class Part : std::uint8_t { start, wait };

OrReason<PreparedKernel> prepare_all_reduce(const Problem& problem, Ranks* ranks, Part part) {
    const std::int64_t wanted = problem.attributes.integer("ranks");
    if (const int have = ranks ? ranks->size() : 1; wanted != have)
        return NoValue{fmt::format("it sums over {} ranks, the device is one of {}", wanted, have)};
    PreparedKernel kernel;
    for (int i = 0; i < static_cast<int>(problem.inputs.size()); ++i) kernel.may_write_over.push_back({i});
    std::vector<std::int64_t> counts;
    for (const Type& type : problem.outputs) counts.push_back(type.shape.elements());
    kernel.launch = [=, counts = std::move(counts),
                     sum = static_cast<int>(problem.attributes.integer("sum"))](const Operands& operands) {
        if (ranks && part == Part::wait) ranks->wait(sum);
        std::vector<std::span<float>> numbers = copied_to_outputs(counts, operands);
        if (ranks && part == Part::start) ranks->start_sum(sum, std::move(numbers));
    };
    return kernel;
}

}  // namespace

void add_collective_kernels(KernelTable& table, const Context& context) {
    const auto tree_add = [&pool = context.pool](const Problem& problem) -> OrReason<PreparedKernel> {
        return prepare_tree_add(problem, pool);
    };
    table["tree_add"].push_back({.name = "sum", .prepare = tree_add});
    for (const auto& [op, part] :
         {std::pair{"all_reduce_start", Part::start}, std::pair{"all_reduce_wait", Part::wait}})
        table[op].push_back({.name = "exchange of ranks",
                             .prepare = [ranks = context.ranks, part = part](const Problem& problem) {
                                 return prepare_all_reduce(problem, ranks, part);
                             }});
}

}  // namespace mantissa::on_cpu
