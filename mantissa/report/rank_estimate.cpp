#include "mantissa/report/rank_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/ranks/exchange.h"
#include "mantissa/ranks/part.h"
#include "mantissa/report/unit_peak.h"

namespace mantissa::inline v0 {

namespace {

/// What a node puts on the way.
struct Sent {
    std::int64_t bytes = 0;   ///< of the tensors, whole
    std::int64_t rounds = 0;  ///< exchanges, one after another
    double ways = 1;          ///< how often a rank sends and gets its share of the bytes
    bool is_awaited = false;  ///< in the node itself
};

std::int64_t bytes_of(std::span<const Type> types) {
    std::int64_t bytes = 0;
    for (const Type& type : types) bytes += type.bytes();
    return bytes;
}

/// What each rank has of tensors whose parts are put together, in bytes.
std::int64_t part_bytes(std::span<const Type> wholes, std::int64_t ranks) {
    std::int64_t bytes = 0;
    for (const Type& type : wholes)
        bytes += part_elements(type.shape.elements(), ranks) * static_cast<std::int64_t>(size_of(type.dtype));
    return bytes;
}

std::optional<Sent> sent_by(const Node& node) {
    const std::string_view op = node.op->name;
    // Terms in BF16 are half as long, and sums are as they were.
    const double terms = node.attributes.has("wire") ? 0.5 : 1;
    if (op == "all_reduce_start") {
        const std::int64_t bytes = bytes_of(node.outputs);
        return Sent{.bytes = bytes, .rounds = 2 * parts_of(bytes, Exchange::piece_bytes), .ways = terms + 1};
    }
    if (op == "reduce_scatter_start" || op == "all_gather_start") {
        const std::int64_t ranks = node.attributes.integer("ranks");
        return Sent{.bytes = bytes_of(node.outputs),
                    .rounds = parts_of(part_bytes(node.outputs, ranks), Exchange::piece_bytes / ranks),
                    .ways = terms};
    }
    if (op == "all_gather_rows_start") {
        const std::int64_t bytes = bytes_of(node.outputs);
        return Sent{.bytes = bytes, .rounds = parts_of(bytes, Exchange::piece_bytes)};
    }
    if (op == "norm_of_parts") {
        std::int64_t elements = 0;
        for (std::int64_t of : node.attributes.list("elements")) elements += of;
        const auto size = static_cast<std::int64_t>(sizeof(double));
        return Sent{.bytes = elements / part_block * size, .rounds = 1, .is_awaited = true};
    }
    return std::nullopt;
}

double seconds_of(const Sent& sent, std::int64_t ranks, const RankLink& link) {
    const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    const auto bytes = static_cast<double>(sent.bytes);
    // Read and written where they are brought together, and where they are put back.
    const double local = link.local_bytes_per_second > 0 ? 4 * bytes / link.local_bytes_per_second : 0;
    return sent.ways * others * bytes / link.bytes_per_second +
           static_cast<double>(sent.rounds) * link.latency + local;
}

bool awaits(const Node& node) {
    return node.op->name == "all_reduce_wait" || node.op->name == "reduce_scatter_wait" ||
           node.op->name == "all_gather_wait";
}

}  // namespace

RankEstimate estimate_step(const Plan& step, std::span<const double> node_seconds, double before,
                           const RankLink& link) {
    check(node_seconds.size() == step.nodes().size(), "each planned node takes its time");
    RankEstimate estimate;
    double now = before, link_is_free = 0;
    std::map<std::int64_t, double> arrivals;  // by the number of an exchange
    const auto wait_until = [&](double arrival) {
        estimate.waiting += std::max(0.0, arrival - now);
        now = std::max(now, arrival);
    };
    for (std::size_t i = 0; i < node_seconds.size(); ++i) {
        const Node& node = step.graph().node(step.nodes()[i].node);
        if (awaits(node)) wait_until(arrivals.at(node.attributes.integer("sum")));
        now += node_seconds[i];
        const std::optional<Sent> sent = sent_by(node);
        if (!sent) continue;
        const double seconds = seconds_of(*sent, node.attributes.integer("ranks"), link);
        link_is_free = std::max(link_is_free, now) + seconds;
        estimate.travelling += seconds;
        if (sent->is_awaited)
            wait_until(link_is_free);
        else
            arrivals[node.attributes.integer("sum")] = link_is_free;
    }
    estimate.seconds = now;
    return estimate;
}

std::vector<double> estimated_node_seconds(const Plan& plan, const Peaks& peaks, const Target& target) {
    constexpr double share = 0.5;
    std::vector<double> seconds;
    for (const PlannedNode& planned : plan.nodes()) {
        const bool is_exchange =
            sent_by(plan.graph().node(planned.node)).has_value() || awaits(plan.graph().node(planned.node));
        const double arithmetic =
            static_cast<double>(planned.cost.flops) / unit_peak(planned.arithmetic, peaks, target);
        const double memory = peaks.copy > 0 ? static_cast<double>(planned.cost.bytes) / peaks.copy : 0;
        seconds.push_back(is_exchange ? 0 : std::max(arithmetic, memory) / share);
    }
    return seconds;
}

std::string rank_table(const std::vector<RankOption>& options, const std::string& unit) {
    std::string text = fmt::format("{:>24} {:>10} {:>12} {:>9} {:>8} {:>14}\n", "", "step ms", "travels ms",
                                   "waits ms", "hidden", unit + "/s");
    const RankOption* best = nullptr;
    for (const RankOption& each : options) {
        if (!best || each.units_per_second > best->units_per_second) best = &each;
        text += fmt::format("{:>24} {:>10.1f} {:>12.1f} {:>9.1f} {:>6.0f} % {:>14.0f}\n", each.what,
                            1e3 * each.estimate.seconds, 1e3 * each.estimate.travelling,
                            1e3 * each.estimate.waiting, 100 * each.estimate.hidden(), each.units_per_second);
    }
    if (best && options.size() > 1) text += fmt::format("best: {}\n", best->what);
    return text;
}

}  // namespace mantissa
