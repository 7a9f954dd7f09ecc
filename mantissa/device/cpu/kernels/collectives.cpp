// Binds sums of gradients: additions here, and sums that travel between ranks, whole or in parts. Binds
// operations on parts, too: norms, and tensors that are put together again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mantissa/base/whole_units.h"
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

/// The outputs, filled with their operands; nothing is copied where an output lies over its operand.
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

std::vector<std::int64_t> counts_of(std::span<const Type> types) {
    std::vector<std::int64_t> counts;
    for (const Type& type : types) counts.push_back(type.shape.elements());
    return counts;
}

int sum_of(const Problem& problem) { return static_cast<int>(problem.attributes.integer("sum")); }
Wire wire_of(const Problem& problem) { return problem.attributes.has("wire") ? Wire::bf16 : Wire::fp32; }

/// Every output over its operand.
std::vector<std::vector<int>> each_over_its_operand(const Problem& problem) {
    std::vector<std::vector<int>> over;
    for (int i = 0; i < static_cast<int>(problem.inputs.size()); ++i) over.push_back({i});
    return over;
}

/// The ranks that the device belongs to; without ranks it is alone.
struct AmongRanks {
    Ranks* ranks = nullptr;
    std::int64_t size() const { return ranks ? ranks->size() : 1; }
    std::int64_t rank() const { return ranks ? ranks->rank() : 0; }
    /// This rank's part of so many elements.
    Shard own(std::int64_t elements) const { return shard_of(elements, size(), rank()); }
};

PreparedKernel prepare_all_reduce_start(const Problem& problem, AmongRanks among) {
    const Launch launch = [among, counts = counts_of(problem.outputs), sum = sum_of(problem),
                           wire = wire_of(problem)](const Operands& operands) {
        std::vector<std::span<float>> numbers = copied_to_outputs(counts, operands);
        if (among.ranks) among.ranks->start_sum(sum, std::move(numbers), wire);
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem)};
}

PreparedKernel prepare_reduce_scatter_start(const Problem& problem, AmongRanks among) {
    const Launch launch = [among, counts = counts_of(problem.outputs), sum = sum_of(problem),
                           wire = wire_of(problem)](const Operands& operands) {
        const std::vector<std::span<float>> numbers = copied_to_outputs(counts, operands);
        if (!among.ranks) return;
        std::vector<std::vector<std::span<float>>> by_rank(among.size());
        for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
            for (std::size_t i = 0; i < counts.size(); ++i) {
                const Shard part = shard_of(counts[i], among.size(), static_cast<std::int64_t>(rank));
                by_rank[rank].push_back(numbers[i].subspan(part.first, static_cast<std::size_t>(part.count)));
            }
        among.ranks->start_sum_of_parts(sum, std::move(by_rank), wire);
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem)};
}

/// Data that passed stays in place, or is copied to its output.
PreparedKernel prepare_wait(const Problem& problem, AmongRanks among) {
    std::vector<std::int64_t> bytes;
    for (const Type& type : problem.outputs) bytes.push_back(type.bytes());
    const Launch launch = [among, bytes = std::move(bytes), sum = sum_of(problem)](const Operands& operands) {
        if (among.ranks) among.ranks->wait(sum);
        for (std::size_t i = 0; i < bytes.size(); ++i)
            if (operands.outputs[i] != operands.inputs[i] && bytes[i] > 0)
                std::memcpy(operands.outputs[i], operands.inputs[i], static_cast<std::size_t>(bytes[i]));
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem)};
}

/// Copies this rank's part of so many elements, of `size` bytes each, and zeros behind it.
void copy_part(const std::byte* whole, std::byte* to, std::int64_t elements, std::int64_t size,
               AmongRanks among) {
    const Shard part = among.own(elements);
    const auto bytes = static_cast<std::size_t>(part.count * size);
    if (bytes > 0) std::memcpy(to, whole + part.first * size, bytes);
    std::memset(to + bytes, 0,
                static_cast<std::size_t>(shard_elements(elements, among.size()) * size) - bytes);
}

PreparedKernel prepare_own_shards(const Problem& problem, AmongRanks among) {
    const Launch launch = [among, counts = counts_of(problem.inputs),
                           size = static_cast<std::int64_t>(size_of(problem.inputs[0].dtype)),
                           sum = problem.attributes.has("sum") ? sum_of(problem)
                                                               : -1](const Operands& operands) {
        if (among.ranks && sum >= 0) among.ranks->wait(sum);
        for (std::size_t i = 0; i < counts.size(); ++i)
            copy_part(operands.input<std::byte>(i), operands.output<std::byte>(i), counts[i], size, among);
    };
    return {.launch = launch};
}

PreparedKernel prepare_all_gather_start(const Problem& problem, AmongRanks among) {
    struct Gathered {
        std::int64_t elements, size;
    };
    std::vector<Gathered> tensors;
    for (const Type& type : problem.outputs)
        tensors.push_back({type.shape.elements(), static_cast<std::int64_t>(size_of(type.dtype))});
    const Launch launch = [among, tensors = std::move(tensors),
                           sum = sum_of(problem)](const Operands& operands) {
        std::vector<std::vector<std::span<std::byte>>> by_rank(among.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto [elements, size] = tensors[i];
            std::byte* const whole = operands.output<std::byte>(i);
            for (std::int64_t rank = 0; rank < among.size(); ++rank) {
                const Shard part = shard_of(elements, among.size(), rank);
                by_rank[rank].emplace_back(whole + part.first * size,
                                           static_cast<std::size_t>(part.count * size));
            }
            const std::span<std::byte> own = by_rank[among.rank()].back();
            if (!own.empty()) std::memcpy(own.data(), operands.inputs[i], own.size());
        }
        if (among.ranks) among.ranks->start_gather(sum, std::move(by_rank));
    };
    return {.launch = launch};
}

/// Zeros stand for the other ranks' rows until these arrive: where a rank looks alone, they stay.
PreparedKernel prepare_all_gather_rows_start(const Problem& problem, AmongRanks among) {
    std::vector<std::size_t> bytes;  // of a rank
    for (const Type& type : problem.inputs) bytes.push_back(static_cast<std::size_t>(type.bytes()));
    const Launch launch = [among, bytes = std::move(bytes), sum = sum_of(problem)](const Operands& operands) {
        std::vector<std::vector<std::span<std::byte>>> by_rank(among.size());
        for (std::size_t i = 0; i < bytes.size(); ++i)
            for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
                std::byte* const theirs = operands.output<std::byte>(i) + rank * bytes[i];
                if (static_cast<std::int64_t>(rank) == among.rank())
                    std::memcpy(theirs, operands.inputs[i], bytes[i]);
                else
                    std::memset(theirs, 0, bytes[i]);
                by_rank[rank].emplace_back(theirs, bytes[i]);
            }
        if (among.ranks) among.ranks->start_gather(sum, std::move(by_rank));
    };
    return {.launch = launch};
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

PreparedKernel prepare_norm_of_parts(const Problem& problem, AmongRanks among, const Context& context) {
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
        std::fill_n(sums, blocks, 0.0);  // other ranks have none where a rank looks alone
        std::vector<std::vector<std::span<std::byte>>> by_rank(among.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const NormedPart& each = parts[i];
            const Shard own = each.whole ? Shard{0, each.elements} : among.own(each.elements);
            if (own.count > 0)
                block_norms(kernels,
                            {.count = own.count,
                             .x = {o.inputs[i], DType::f32},
                             .workspace = each.of(sums, own).data()},
                            pool);
            if (each.whole) continue;
            for (std::int64_t rank = 0; rank < among.size(); ++rank)
                by_rank[rank].push_back(
                    std::as_writable_bytes(each.of(sums, shard_of(each.elements, among.size(), rank))));
        }
        if (among.ranks) {
            among.ranks->start_gather(norms, std::move(by_rank));
            among.ranks->wait(norms);
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

using PrepareAmongRanks = PreparedKernel (*)(const Problem&, AmongRanks);

/// Prepares for the device's ranks; refuses a problem of another number of ranks.
auto among_ranks(Ranks* ranks, std::function<PreparedKernel(const Problem&, AmongRanks)> prepare) {
    return [=](const Problem& problem) -> Expected<PreparedKernel> {
        const std::int64_t wanted = problem.attributes.integer("ranks");
        if (const int have = ranks ? ranks->size() : 1; wanted != have)
            return Unexpected{fmt::format("it is for {} ranks, the device is one of {}", wanted, have)};
        return prepare(problem, AmongRanks{ranks});
    };
}

}  // namespace

void add_collective_kernels(KernelTable& table, const Context& context) {
    const auto tree_add = [&pool = context.pool](const Problem& problem) -> Expected<PreparedKernel> {
        return prepare_tree_add(problem, pool);
    };
    table["tree_add"].push_back({.name = "sum", .prepare = tree_add});
    const std::pair<const char*, PrepareAmongRanks> exchanges[] = {
        {"all_reduce_start", prepare_all_reduce_start},
        {"all_reduce_wait", prepare_wait},
        {"reduce_scatter_start", prepare_reduce_scatter_start},
        {"reduce_scatter_wait", prepare_own_shards},
        {"own_shard", prepare_own_shards},
        {"all_gather_start", prepare_all_gather_start},
        {"all_gather_rows_start", prepare_all_gather_rows_start},
        {"all_gather_wait", prepare_wait},
    };
    for (const auto& [op, prepare] : exchanges)
        table[op].push_back({.name = "exchange of ranks", .prepare = among_ranks(context.ranks, prepare)});
    table["norm_of_parts"].push_back(
        {.name = "exchange of ranks",
         .arithmetic = {.sums = DType::f64},
         .prepare = among_ranks(context.ranks, [context](const Problem& problem, AmongRanks among) {
             return prepare_norm_of_parts(problem, among, context);
         })});
}

}  // namespace mantissa::on_cpu
