// Binds sums of gradients: additions here, and sums that travel between ranks, whole or in parts. Also
// the operations on parts: norms, and tensors that are put together again.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/bind/exchanges.h"
#include "mantissa/device/cpu/kernels/kernels.h"
#include "mantissa/device/cpu/rows/rows.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0::on_cpu {

namespace {

PreparedKernel prepare_tree_add(const Problem& problem, ThreadPool& pool) {
    const Launch launch = [count = problem.outputs[0].shape.elements(), &pool](const Operands& operands) {
        // 256 KB of each operand: enough to keep the memory busy, and a share for each of many threads.
        constexpr std::int64_t block = std::int64_t{1} << 16;
        const float *a = operands.input<float>(0), *b = operands.input<float>(1);
        float* sum = operands.output<float>(0);
        pool.for_each_block(ceil_div(count, block), [&](std::int64_t index, int) {
            const std::int64_t last = std::min(count, (index + 1) * block);
            for (std::int64_t i = index * block; i < last; ++i) sum[i] = a[i] + b[i];
        });
    };
    return {.launch = launch, .may_write_over = {{1, 0}}};
}

Wire wire_of(const Problem& problem) { return problem.attributes.has("wire") ? Wire::bf16 : Wire::fp32; }

/// Tensors that lie in the outputs, in FP32.
std::vector<std::span<float>> numbers_of(const Operands& operands, std::span<const std::int64_t> bytes) {
    std::vector<std::span<float>> numbers;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        numbers.emplace_back(operands.output<float>(i), static_cast<std::size_t>(bytes[i]) / sizeof(float));
    return numbers;
}

DeviceExchange exchange_of(Ranks* ranks) {
    return {.ranks = ranks ? ranks->size() : 1,
            .rank = ranks ? ranks->rank() : 0,
            .name = "exchange of ranks",
            .copy =
                [](std::byte* to, const std::byte* from, std::int64_t bytes) {
                    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
                },
            .zero =
                [](std::byte* to, std::int64_t bytes) {
                    if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
                },
            .has_others = [ranks] { return ranks && ranks->size() > 1 && !ranks->is_alone(); },
            .wait = [ranks](int sum) { ranks->wait(sum); },
            .gather = [ranks](int sum, const BytesByRank& by_rank) { ranks->start_gather(sum, by_rank); }};
}

PreparedKernel prepare_all_reduce_start(const Problem& problem, const DeviceExchange& exchange,
                                        Ranks* ranks) {
    const Launch launch = [=, bytes = bytes_of(problem.outputs), sum = sum_of(problem),
                           wire = wire_of(problem)](const Operands& operands) {
        copy_to_outputs(exchange, operands, bytes);
        if (exchange.has_others()) ranks->start_sum(sum, numbers_of(operands, bytes), wire);
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem)};
}

PreparedKernel prepare_reduce_scatter_start(const Problem& problem, const DeviceExchange& exchange,
                                            Ranks* ranks) {
    const Launch launch = [=, bytes = bytes_of(problem.outputs), sum = sum_of(problem),
                           wire = wire_of(problem)](const Operands& operands) {
        copy_to_outputs(exchange, operands, bytes);
        if (!exchange.has_others()) return;
        std::vector<std::vector<std::span<float>>> by_rank(static_cast<std::size_t>(exchange.ranks));
        for (int rank = 0; rank < exchange.ranks; ++rank)
            for (const std::span<float> whole : numbers_of(operands, bytes)) {
                const Shard part = shard_of(std::ssize(whole), exchange.ranks, rank);
                by_rank[static_cast<std::size_t>(rank)].push_back(whole.subspan(
                    static_cast<std::size_t>(part.first), static_cast<std::size_t>(part.count)));
            }
        ranks->start_sum_of_parts(sum, std::move(by_rank), wire);
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem)};
}

/// The number of the sum that the norm of parts exchanges: no other sum has it.
constexpr int norms = -2;

/// A gradient whose sums over blocks lie at [first, first + of all) of the workspace; each rank knows the
/// sums of its blocks.
struct NormedPart {
    std::int64_t elements = 0, first = 0;
    bool whole = true;
    std::int64_t blocks() const { return ceil_div(elements, norm_block); }
    std::span<double> of_all(double* sums) const {
        return {sums + first, static_cast<std::size_t>(blocks())};
    }
    /// The rank's sums among them.
    std::span<double> of(double* sums, Shard part) const {
        const std::int64_t begin = std::min(blocks(), part.first / norm_block);
        return of_all(sums).subspan(begin, static_cast<std::size_t>(ceil_div(part.count, norm_block)));
    }
};

PreparedKernel prepare_norm_of_parts(const Problem& problem, const DeviceExchange& exchange,
                                     const Context& context) {
    static_assert(shard_block % norm_block == 0, "a block is one rank's");
    std::vector<NormedPart> parts;
    std::int64_t blocks = 0;
    const std::vector<std::int64_t>& elements = problem.attributes.list("elements");
    for (std::size_t i = 0; i < elements.size(); ++i) {
        parts.push_back({.elements = elements[i] > 0 ? elements[i] : problem.inputs[i].shape.elements(),
                         .first = blocks,
                         .whole = elements[i] == 0});
        blocks += parts.back().blocks();
    }
    const Launch launch = [=, parts = std::move(parts), &pool = context.pool,
                           &kernels = row_kernels(context.isa)](const Operands& o) {
        auto* const sums = reinterpret_cast<double*>(o.workspace);
        std::fill_n(sums, blocks, 0.0);  // of the others there are none where a rank looks alone
        BytesByRank by_rank(static_cast<std::size_t>(exchange.ranks));
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const NormedPart& each = parts[i];
            const Shard own =
                each.whole ? Shard{0, each.elements} : shard_of(each.elements, exchange.ranks, exchange.rank);
            if (own.count > 0)
                block_norms(kernels,
                            {.count = own.count,
                             .x = {o.inputs[i], DType::f32},
                             .workspace = each.of(sums, own).data()},
                            pool);
            if (each.whole) continue;
            for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
                by_rank[rank].push_back(std::as_writable_bytes(
                    each.of(sums, shard_of(each.elements, exchange.ranks, static_cast<std::int64_t>(rank)))));
        }
        if (exchange.has_others()) {
            exchange.gather(norms, by_rank);
            exchange.wait(norms);
        }
        double total = 0;
        bool finite = true;
        for (const NormedPart& each : parts) {
            const SquaredNormResult norm = sum_of_block_norms(each.of_all(sums));
            total += norm.sum;
            finite = finite && norm.finite;
        }
        *o.output<float>(0) = static_cast<float>(std::sqrt(total));
        *o.output<bool>(1) = finite;
    };
    return {.launch = launch, .workspace = blocks * static_cast<std::int64_t>(sizeof(double))};
}

}  // namespace

void add_collective_kernels(KernelTable& table, const Context& context) {
    const auto tree_add = [&pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        return prepare_tree_add(problem, pool);
    };
    table["tree_add"].push_back({.name = "sum", .prepare = tree_add});
    const DeviceExchange exchange = exchange_of(context.ranks);
    const auto sums = [exchange, ranks = context.ranks](auto prepare) -> PrepareExchange {
        return [=](const Problem& problem) { return prepare(problem, exchange, ranks); };
    };
    add_exchanges(table, exchange, sums(prepare_all_reduce_start), sums(prepare_reduce_scatter_start));
    Kernel norm = kernel_among_ranks(exchange, [exchange, context](const Problem& problem) {
        return prepare_norm_of_parts(problem, exchange, context);
    });
    norm.arithmetic.sums = DType::f64;
    table["norm_of_parts"].push_back(std::move(norm));
}

}  // namespace mantissa::on_cpu
