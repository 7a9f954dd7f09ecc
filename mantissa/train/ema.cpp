#include "mantissa/train/ema.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/optimizer_update.h"

namespace mantissa::inline v0 {

namespace {

const std::string average_of = "ema.", count_name = "ema";

Tensor kept(Graph& graph, const std::string& name, Type type) {
    return {graph,
            graph.add_state(
                {.kind = State::Kind::optimizer, .name = name, .type = std::move(type), .initializer = {}})};
}

void update_state(Tensor state, Tensor value) {
    Graph& graph = state.graph();
    graph.add_update(graph.state_of(state.value().node), value.value());
}

Tensor result_of(Graph& graph, std::string_view name) {
    const auto found = std::ranges::find(graph.results(), name, &Result::name);
    check(found != graph.results().end(), "an optimizer says whether its step was applied");
    return {graph, found->value};
}

}  // namespace

bool is_average(std::string_view state) { return state.starts_with(average_of); }

TraceUpdate with_average(TraceUpdate update, double decay) {
    require_option(decay >= 0 && static_cast<float>(decay) < 1,
                   "the decay of averaged weights must lie in [0, 1)", decay);
    if (decay == 0) return update;
    return [=](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        update(graph, loss, gradients);
        const OriginScope scope(graph, Origin{.scope = "", .stage = Stage::update});
        const Tensor applied = result_of(graph, "applied");
        const Tensor count = kept(graph, count_name, {DType::f64, {}});
        const Tensor is_first = equal(count, constant(graph, 0.0, DType::f64));
        for (const ParameterGradient& parameter : gradients) {
            const State state = graph.state(parameter.state);
            const OriginScope of_parameter(graph, state.name);
            const auto updated = std::ranges::find(graph.updates(), parameter.state, &Update::state);
            check(updated != graph.updates().end(), "a parameter with a gradient is updated");
            const Tensor now(graph, updated->value),
                before = kept(graph, average_of + state.name, state.type);
            const Tensor blended = before * decay + now * (1 - decay);
            update_state(before, select(applied, select(is_first, now, blended), before));
        }
        update_state(count, select(applied, count + 1.0, count));
    };
}

void swap_averages(StateBlock& state) {
    if (!state.has(count_name)) return;
    double count = 0;
    const std::vector<std::byte> bytes = state.read(count_name);
    std::memcpy(&count, bytes.data(), sizeof count);
    if (count == 0) return;
    for (const State& average : state.states()) {
        if (!is_average(average.name)) continue;
        const std::string parameter = average.name.substr(average_of.size());
        const std::vector<std::byte> averaged = state.read(average.name), own = state.read(parameter);
        state.write(average.name, own);
        state.write(parameter, averaged);
    }
}

AveragedWeights::AveragedWeights(const Trainer& trainer) : AveragedWeights(trainer.state()) {}
AveragedWeights::AveragedWeights(StateBlock& state) : state_(state) { swap_averages(state_); }
AveragedWeights::~AveragedWeights() { swap_averages(state_); }

}  // namespace mantissa
