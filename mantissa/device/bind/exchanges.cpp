#include "mantissa/device/bind/exchanges.h"

#include <fmt/format.h>

#include <utility>

#include "mantissa/ranks/shard.h"

namespace mantissa::inline v0 {

namespace {

PreparedKernel prepare_wait(const DeviceExchange& exchange, const Problem& problem) {
    const auto launch = [exchange, sum = sum_of(problem),
                         bytes = bytes_of(problem.outputs)](const Operands& operands) {
        if (exchange.has_others()) exchange.wait(sum);
        copy_to_outputs(exchange, operands, bytes);
    };
    return {.launch = launch, .may_write_over = each_over_its_operand(problem), .launches = 0};
}

/// Bytes of a tensor: [first, first + count).
Shard bytes_of_part(const Type& whole, int ranks, int rank) {
    const Shard part = shard_of(whole.shape.elements(), ranks, rank);
    const auto size = static_cast<std::int64_t>(size_of(whole.dtype));
    return {part.first * size, part.count * size};
}

/// This rank's parts, with zeros behind them; behind the sum, where it is one's.
PreparedKernel prepare_own_shards(const DeviceExchange& exchange, const Problem& problem) {
    std::vector<Shard> own;
    for (const Type& type : problem.inputs) own.push_back(bytes_of_part(type, exchange.ranks, exchange.rank));
    const auto launch = [exchange, own = std::move(own), bytes = bytes_of(problem.outputs),
                         sum =
                             problem.attributes.has("sum") ? sum_of(problem) : -1](const Operands& operands) {
        if (sum >= 0 && exchange.has_others()) exchange.wait(sum);
        for (std::size_t i = 0; i < own.size(); ++i) {
            exchange.copy(operands.outputs[i], operands.inputs[i] + own[i].first, own[i].count);
            exchange.zero(operands.outputs[i] + own[i].count, bytes[i] - own[i].count);
        }
    };
    return {.launch = launch, .launches = std::ssize(problem.inputs)};
}

/// Brings each rank's parts to all ranks: `places`, by rank and tensor, are their places in the outputs.
/// Where a rank looks alone, the others' parts are zeros.
PreparedKernel prepare_gather(const DeviceExchange& exchange, const Problem& problem,
                              Shard (*place_of)(const Type& input, const Type& output, int ranks, int rank)) {
    std::vector<std::vector<Shard>> places(static_cast<std::size_t>(exchange.ranks));
    for (int rank = 0; rank < exchange.ranks; ++rank)
        for (std::size_t i = 0; i < problem.inputs.size(); ++i)
            places[static_cast<std::size_t>(rank)].push_back(
                place_of(problem.inputs[i], problem.outputs[i], exchange.ranks, rank));
    const auto launch = [exchange, places = std::move(places), bytes = bytes_of(problem.outputs),
                         sum = sum_of(problem)](const Operands& operands) {
        for (std::size_t i = 0; i < bytes.size() && places.size() > 1 && !exchange.has_others(); ++i)
            exchange.zero(operands.outputs[i], bytes[i]);
        BytesByRank by_rank(places.size());
        for (std::size_t rank = 0; rank < places.size(); ++rank)
            for (std::size_t i = 0; i < bytes.size(); ++i)
                by_rank[rank].emplace_back(operands.outputs[i] + places[rank][i].first,
                                           static_cast<std::size_t>(places[rank][i].count));
        const auto& own = by_rank[static_cast<std::size_t>(exchange.rank)];
        for (std::size_t i = 0; i < own.size(); ++i)
            exchange.copy(own[i].data(), operands.inputs[i], std::ssize(own[i]));
        if (exchange.has_others()) exchange.gather(sum, by_rank);
    };
    return {.launch = launch, .launches = std::ssize(problem.inputs) + 1};
}

PreparedKernel prepare_all_gather_start(const DeviceExchange& exchange, const Problem& problem) {
    return prepare_gather(exchange, problem, [](const Type&, const Type& whole, int ranks, int rank) {
        return bytes_of_part(whole, ranks, rank);
    });
}

PreparedKernel prepare_all_gather_rows_start(const DeviceExchange& exchange, const Problem& problem) {
    return prepare_gather(exchange, problem, [](const Type& rows, const Type&, int, int rank) {
        return Shard{rank * rows.bytes(), rows.bytes()};
    });
}

}  // namespace

int sum_of(const Problem& problem) { return static_cast<int>(problem.attributes.integer("sum")); }

std::vector<std::vector<int>> each_over_its_operand(const Problem& problem) {
    std::vector<std::vector<int>> over;
    for (int i = 0; i < static_cast<int>(problem.inputs.size()); ++i) over.push_back({i});
    return over;
}

std::vector<std::int64_t> bytes_of(std::span<const Type> types) {
    std::vector<std::int64_t> bytes;
    for (const Type& type : types) bytes.push_back(type.bytes());
    return bytes;
}

void copy_to_outputs(const DeviceExchange& exchange, const Operands& operands,
                     std::span<const std::int64_t> bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        if (operands.outputs[i] != operands.inputs[i])
            exchange.copy(operands.outputs[i], operands.inputs[i], bytes[i]);
}

std::string refuse_ranks(const Problem& problem, int ranks) {
    const std::int64_t wanted = problem.attributes.integer("ranks");
    return wanted == ranks ? "" : fmt::format("it is for {} ranks, the device is one of {}", wanted, ranks);
}

Kernel kernel_among_ranks(const DeviceExchange& exchange, PrepareExchange prepare) {
    return {.name = exchange.name,
            .prepare = [ranks = exchange.ranks,
                        prepare = std::move(prepare)](const Problem& problem) -> Expected<PreparedKernel> {
                if (std::string reason = refuse_ranks(problem, ranks); !reason.empty())
                    return Unexpected{std::move(reason)};
                return prepare(problem);
            }};
}

void add_exchanges(std::map<std::string, std::vector<Kernel>, std::less<>>& table,
                   const DeviceExchange& exchange, PrepareExchange all_reduce_start,
                   PrepareExchange reduce_scatter_start) {
    table["all_reduce_start"].push_back(kernel_among_ranks(exchange, std::move(all_reduce_start)));
    table["reduce_scatter_start"].push_back(kernel_among_ranks(exchange, std::move(reduce_scatter_start)));
    const std::pair<const char*, PreparedKernel (*)(const DeviceExchange&, const Problem&)> others[] = {
        {"all_reduce_wait", prepare_wait},
        {"reduce_scatter_wait", prepare_own_shards},
        {"own_shard", prepare_own_shards},
        {"all_gather_start", prepare_all_gather_start},
        {"all_gather_rows_start", prepare_all_gather_rows_start},
        {"all_gather_wait", prepare_wait},
    };
    for (const auto& [op, prepare] : others)
        table[op].push_back(kernel_among_ranks(
            exchange,
            [exchange, prepare = prepare](const Problem& problem) { return prepare(exchange, problem); }));
}

}  // namespace mantissa
