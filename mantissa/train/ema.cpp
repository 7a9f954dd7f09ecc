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

std::string averaged_weight(const std::string& average) {
    check(is_average(average), "an average is of a weight");
    return average.substr(average_of.size());
}

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
        const std::vector<Update> updates =
            graph.updates();  // taken first, so that updates added below are not averaged
        for (const Update& updated : updates) {
            const State state = graph.state(updated.state);
            if (!is_weight(state)) continue;
            const OriginScope of_weight(graph, state.name);
            const Tensor now(graph, updated.value), before = kept(graph, average_of + state.name, state.type);
            const Tensor blended = before * decay + now * (1 - decay);
            update_state(before, select(applied, select(is_first, now, blended), before));
        }
        update_state(count, select(applied, count + 1.0, count));
    };
}

bool swap_averages(StateBlock& state) {
    if (!state.has(count_name)) return false;
    double count = 0;
    const std::vector<std::byte> bytes = state.read(count_name);
    std::memcpy(&count, bytes.data(), sizeof count);
    if (count == 0) return false;
    for (const State& average : state.states()) {
        if (!is_average(average.name)) continue;
        const std::string weight = averaged_weight(average.name);
        const std::vector<std::byte> averaged = state.read(average.name), own = state.read(weight);
        state.write(average.name, own);
        state.write(weight, averaged);
    }
    return true;
}

void require_own_weights(const StateBlock& state) {
    if (state.is_lent())
        throw UserError(
            "the parameters are their averages for now, which nothing may change: let AveragedWeights go "
            "first");
}

AveragedWeights::AveragedWeights(const Trainer& trainer) : AveragedWeights(trainer.state()) {}
AveragedWeights::AveragedWeights(StateBlock& state)
    : state_(state), swapped_(!state.is_lent() && swap_averages(state)) {
    if (swapped_) state_.lend(true);
}
AveragedWeights::~AveragedWeights() {
    if (!swapped_) return;
    swap_averages(state_);
    state_.lend(false);
}

}  // namespace mantissa
