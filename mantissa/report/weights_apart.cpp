#include "mantissa/report/weights_apart.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

double distance(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        sum += difference * difference;
    }
    return std::sqrt(sum);
}

bool is_trained_in_f32(const State& state) {
    return state.kind == State::Kind::parameter && state.type.dtype == DType::f32;
}

/// By parameter, the line of the first operation that takes it, cast or not.
std::map<std::string, std::string> lines_of_parameters(const Graph& graph) {
    std::map<std::string, std::string> lines;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        if (node.op->name == "cast") continue;
        for (Value value : node.inputs) {
            while (graph.node(value.node).op->name == "cast") value = graph.node(value.node).inputs[0];
            const int state = graph.state_of(value.node);
            if (state >= 0 && graph.state(state).kind == State::Kind::parameter)
                lines.try_emplace(graph.state(state).name, node.origin.line.text());
        }
    }
    return lines;
}

}  // namespace

void WeightsOfFirst::begin(const Trainer& trainer) {
    const StateBlock& states = trainer.state();
    for (const State& state : states.states())
        if (is_trained_in_f32(state)) weights_[state.name].numbers = states.read_f32(state.name);
}

void WeightsOfFirst::end(const Trainer& trainer) {
    for (auto& [name, weight] : weights_) {
        std::vector<float> numbers = trainer.state().read_f32(name);
        weight.moved = distance(numbers, weight.numbers);
        weight.numbers = std::move(numbers);
    }
}

std::vector<WeightApart> WeightsOfFirst::furthest(const Trainer& other, std::size_t most) const {
    const std::map<std::string, std::string> lines = lines_of_parameters(other.plan().step().graph());
    std::vector<WeightApart> all;
    for (const auto& [name, weight] : weights_) {
        const double share = distance(other.state().read_f32(name), weight.numbers) / weight.moved;
        if (!std::isfinite(share)) continue;
        const auto line = lines.find(name);
        all.push_back({.name = name, .line = line == lines.end() ? "" : line->second, .share = share});
    }
    std::ranges::stable_sort(all, std::greater{}, &WeightApart::share);
    if (all.size() > most) all.resize(most);
    return all;
}

}  // namespace mantissa
