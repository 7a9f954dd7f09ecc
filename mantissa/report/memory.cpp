#include "mantissa/report/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"

namespace mantissa::inline v0 {

namespace {

NodeId peak_of(const Plan& plan) {
    std::vector<std::int64_t> change(plan.graph().size() + 2);
    for (const Allocation& allocation : plan.memory().allocations) {
        change[static_cast<std::size_t>(allocation.first)] += allocation.bytes;
        change[static_cast<std::size_t>(allocation.last) + 1] -= allocation.bytes;
    }
    std::int64_t now = 0, most = -1;
    NodeId peak = 0;
    for (std::size_t id = 0; id < plan.graph().size(); ++id) {
        now += change[id];
        if (now <= most) continue;
        most = now;
        peak = static_cast<NodeId>(id);
    }
    return peak;
}

LiveValues kind_of(const Graph& graph, const Allocation& allocation) {
    const Node& node = graph.node(allocation.value.node);
    const bool workspace = allocation.value.output < 0;
    return {.op = workspace ? "workspace" : std::string(node.op->name),
            .pass = std::string(name_of(node.origin.stage)),
            .type = workspace ? "" : graph.type(allocation.value).text(),
            .count = 1,
            .bytes = allocation.bytes};
}

}  // namespace

MemoryAtPeak memory_at_peak(const Plan& plan) {
    const NodeId peak = peak_of(plan);
    const Node& node = plan.graph().node(peak);
    MemoryAtPeak memory{.state = plan.memory().state_bytes,
                        .arena = plan.memory().arena_bytes,
                        .inputs = plan.input_bytes(),
                        .peak_op = std::string(node.op->name),
                        .peak_name = node.origin.scope,
                        .peak_pass = std::string(name_of(node.origin.stage))};
    std::map<std::tuple<std::string, std::string, std::string>, LiveValues> kinds;
    for (const Allocation& allocation : plan.memory().allocations) {
        if (allocation.first > peak || allocation.last < peak) continue;
        const LiveValues one = kind_of(plan.graph(), allocation);
        const auto [entry, is_new] = kinds.try_emplace({one.pass, one.op, one.type}, one);
        if (is_new) continue;
        ++entry->second.count;
        entry->second.bytes += one.bytes;
    }
    for (const auto& [key, kind] : kinds) memory.live.push_back(kind);
    std::stable_sort(memory.live.begin(), memory.live.end(),
                     [](const LiveValues& a, const LiveValues& b) { return a.bytes > b.bytes; });
    return memory;
}

std::string memory_table(const MemoryAtPeak& memory) {
    Grid grid{{"MB", "values", "pass", "operation", "type"}};
    std::int64_t all = 0, shown = 0;
    for (const LiveValues& kind : memory.live) all += kind.bytes;
    for (const LiveValues& kind : memory.live) {
        if (shown * 100 >= all * 99) break;
        shown += kind.bytes;
        grid.rows.push_back({with_decimals(megabytes(kind.bytes), 1), std::to_string(kind.count), kind.pass,
                             kind.op, kind.type});
    }
    return fmt::format(
        "memory: {:.1f} MB as planned: state {:.1f}, activations and gradients {:.1f}, inputs {:.1f}\n"
        "most is in use at {} {} ({}), by\n{}",
        megabytes(memory.total()), megabytes(memory.state), megabytes(memory.arena), megabytes(memory.inputs),
        memory.peak_op, memory.peak_name, memory.peak_pass, grid.text());
}

}  // namespace mantissa
