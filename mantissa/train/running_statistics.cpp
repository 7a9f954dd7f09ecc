#include "mantissa/train/running_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/round_operands.h"

namespace mantissa::inline v0 {

namespace {

/// An update recorded by a forward pass: the state follows the statistic.
struct Recorded {
    int state = 0;
    std::string name;
    Tensor running, statistic;
    std::string_view op;
    Attributes attributes;

    Tensor after(Tensor before, Tensor statistics) const {
        return call1(op, {before, statistics}, attributes);
    }
};

const State& state_at(const Graph& graph, int index) { return graph.state(index); }

/// Whether statistics of a forward or backward pass update a state.
bool follows_batches(const State& state) {
    return state.kind == State::Kind::running || state.name.starts_with(history_prefix);
}

std::vector<Update> running_updates(const Graph& graph) {
    std::vector<Update> updates;
    for (const Update& update : graph.updates())
        if (follows_batches(state_at(graph, update.state))) updates.push_back(update);
    return updates;
}

std::vector<Recorded> recorded_in(Graph& graph) {
    std::vector<Recorded> all;
    for (const Update& update : running_updates(graph)) {
        const State& state = state_at(graph, update.state);
        const Node& node = graph.node(update.value.node);
        const std::string_view op = node.op->name;
        check((op == "running_average" || op == "running_history") && node.inputs[0] == Value{state.node, 0},
              "a running statistic is updated by what it was and a statistic");
        all.push_back({update.state,
                       state.name,
                       {graph, node.inputs[0]},
                       {graph, node.inputs[1]},
                       op,
                       node.attributes});
    }
    return all;
}

/// A state that is zero between steps.
Tensor kept(Graph& graph, const std::string& name, Shape shape) {
    return {graph, graph.add_state({.kind = State::Kind::gradient,
                                    .name = "gradient." + name,
                                    .type = {DType::f32, std::move(shape)},
                                    .initializer = {}})};
}

int index_of(const Tensor& state) { return state.graph().state_of(state.value().node); }

/// The running statistics after this micro-batch, and the states that kept the earlier ones.
struct Blended {
    std::vector<Recorded> recorded;
    std::vector<Tensor> before, after;  // by entry of `recorded`
    Tensor count;                       // of micro-batches before this one
};

Blended blend(Graph& graph) {
    Blended blended{.recorded = recorded_in(graph), .before = {}, .after = {}, .count = {}};
    if (blended.recorded.empty()) return blended;
    blended.count = kept(graph, "micro_steps", {});
    const Tensor is_first = equal(blended.count, constant(graph, 0.0));
    for (const Recorded& each : blended.recorded) {
        const OriginScope scope(graph, each.name);
        blended.before.push_back(kept(graph, each.name, each.running.shape()));
        const Tensor begun = select(is_first, each.running, blended.before.back());
        blended.after.push_back(each.after(begun, each.statistic));
    }
    return blended;
}

/// Statistics with one rule of update: joined, they take one exchange and one row a micro-batch.
struct Alike {
    std::vector<Recorded> recorded;

    bool has_room_for(const Recorded& each) const {
        const Recorded& first = recorded.front();
        return each.op == first.op && each.attributes == first.attributes;
    }

    std::int64_t channels() const {
        std::int64_t all = 0;
        for (const Recorded& each : recorded) all += each.running.dim(0);
        return all;
    }
    Tensor joined(Tensor Recorded::*which) const {
        std::vector<Tensor> all;
        for (const Recorded& each : recorded) all.push_back(each.*which);
        return concat(all, 0);
    }
};

std::vector<Alike> alike_in(Graph& graph) {
    std::vector<Alike> all;
    for (Recorded& each : recorded_in(graph)) {
        const auto found =
            std::ranges::find_if(all, [&](const Alike& alike) { return alike.has_room_for(each); });
        Alike& alike = found != all.end() ? *found : all.emplace_back();
        alike.recorded.push_back(std::move(each));
    }
    return all;
}

/// The statistics of this rank's earlier micro-batches, followed by this one's: [N, C].
Tensor with_kept_rows(const Alike& alike, Tensor kept_rows) {
    const Tensor own = reshape(alike.joined(&Recorded::statistic), {1, alike.channels()});
    return kept_rows ? concat(std::vector{kept_rows, own}, 0) : own;
}

/// [N - 1, C]; none where there is one micro-batch.
Tensor kept_rows(Graph& graph, std::size_t index, const Alike& alike, std::int64_t micro_batches) {
    if (micro_batches == 1) return {};
    return kept(graph, fmt::format("statistics.{}", index), {micro_batches - 1, alike.channels()});
}

}  // namespace

void keep_statistics(Graph& graph, std::int64_t micro_batches) {
    const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
    const std::vector<Alike> all = alike_in(graph);
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (const Recorded& each : all[i].recorded) graph.drop_update(each.state);
        const Tensor before = kept_rows(graph, i, all[i], micro_batches);
        // The oldest row is dropped: after all micro-batches but the last, this step's rows remain.
        const Tensor after = slice(with_kept_rows(all[i], before), 0, 1, micro_batches);
        graph.add_update(index_of(before), after.value());
    }
}

void blend_all_statistics(Graph& graph, std::int64_t micro_batches, const Distribution& distribution) {
    const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
    const std::vector<Alike> all = alike_in(graph);
    std::vector<Tensor> rows;
    for (std::size_t i = 0; i < all.size(); ++i)
        rows.push_back(with_kept_rows(all[i], kept_rows(graph, i, all[i], micro_batches)));
    const std::vector<Tensor> gathered = all_gathered_rows(graph, rows, distribution);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Tensor blended = all[i].recorded.front().after(all[i].joined(&Recorded::running), gathered[i]);
        std::int64_t channel = 0;
        for (const Recorded& each : all[i].recorded) {
            const std::int64_t end = channel + each.running.dim(0);
            graph.replace_update(each.state, slice(blended, 0, channel, end).value());
            channel = end;
        }
    }
}

void blend_into_kept(Graph& graph) {
    const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
    const Blended blended = blend(graph);
    if (blended.recorded.empty()) return;
    for (std::size_t i = 0; i < blended.recorded.size(); ++i) {
        graph.drop_update(blended.recorded[i].state);
        graph.add_update(index_of(blended.before[i]), blended.after[i].value());
    }
    graph.add_update(index_of(blended.count), (blended.count + 1.0).value());
}

void blend_with_kept(Graph& graph) {
    const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
    const Blended blended = blend(graph);
    if (blended.recorded.empty()) return;
    const auto clear = [&](const Tensor& state) {
        graph.add_update(index_of(state), broadcast_to(constant(graph, 0.0), state.shape()).value());
    };
    for (std::size_t i = 0; i < blended.recorded.size(); ++i) {
        graph.replace_update(blended.recorded[i].state, blended.after[i].value());
        clear(blended.before[i]);
    }
    clear(blended.count);
}

void apply_running_statistics(Graph& graph, Tensor apply) {
    for (const Update& update : running_updates(graph)) {
        const State& state = state_at(graph, update.state);
        const OriginScope scope(graph, state.name);
        const Tensor running(graph, Value{state.node, 0}), blended(graph, update.value);
        graph.replace_update(update.state, select(apply, blended, running).value());
    }
}

}  // namespace mantissa
