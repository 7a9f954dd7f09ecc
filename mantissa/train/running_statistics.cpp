#include "mantissa/train/running_statistics.h"

#include <string>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// What a forward pass recorded: the state follows the statistic.
struct Recorded {
    int state = 0;
    std::string name;
    Tensor running, statistic;
    Attributes attributes;
};

const State& state_at(const Graph& graph, int index) {
    return graph.states()[static_cast<std::size_t>(index)];
}

std::vector<Update> running_updates(const Graph& graph) {
    std::vector<Update> updates;
    for (const Update& update : graph.updates())
        if (state_at(graph, update.state).kind == State::Kind::running) updates.push_back(update);
    return updates;
}

std::vector<Recorded> recorded_in(Graph& graph) {
    std::vector<Recorded> all;
    for (const Update& update : running_updates(graph)) {
        const State& state = state_at(graph, update.state);
        const Node& node = graph.node(update.value.node);
        check(node.op->name == "running_average" && node.inputs[0] == Value{state.node, 0},
              "a running statistic is updated by a running_average of itself");
        all.push_back(
            {update.state, state.name, {graph, node.inputs[0]}, {graph, node.inputs[1]}, node.attributes});
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

/// The running statistics after this micro-step, and the states that those before it were kept in.
struct Blended {
    std::vector<Recorded> recorded;
    std::vector<Tensor> before, after;  // by entry of `recorded`
    Tensor count;                       // of micro-steps before this one
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
        blended.after.push_back(call1("running_average", {begun, each.statistic}, each.attributes));
    }
    return blended;
}

}  // namespace

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
