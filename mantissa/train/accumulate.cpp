#include "mantissa/train/accumulate.h"

#include <utility>

#include "mantissa/train/running_statistics.h"

namespace mantissa::inline v0 {

namespace {

/// A state that is zero between steps.
Tensor kept(Graph& graph, const std::string& name, Shape shape) {
    return {graph, graph.add_state({.kind = State::Kind::gradient,
                                    .name = "gradient." + name,
                                    .type = {DType::f32, std::move(shape)},
                                    .initializer = {}})};
}

struct Total {
    int state = 0;  ///< in which it is kept
    Tensor value;   ///< with what this micro-step adds
};

Total total_of(Graph& graph, const std::string& name, Tensor term) {
    const OriginScope scope(graph, name);
    const Tensor before = kept(graph, name, term.shape());
    return {graph.find_state("gradient." + name), before + cast(term, DType::f32)};
}

struct Totals {
    Total loss;
    std::vector<Total> gradients;  ///< in the order of the parameters
};

Totals add_up(Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
    const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
    Totals totals{.loss = total_of(graph, "loss", loss), .gradients = {}};
    for (const ParameterGradient& parameter : gradients) {
        const std::string name = graph.states()[static_cast<std::size_t>(parameter.state)].name;
        totals.gradients.push_back(total_of(graph, name, parameter.gradient));
    }
    return totals;
}

}  // namespace

TraceUpdate add_to_gradients() {
    return [](Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        const Totals totals = add_up(graph, loss, gradients);
        blend_into_kept(graph);
        graph.add_update(totals.loss.state, totals.loss.value.value());
        for (const Total& total : totals.gradients) graph.add_update(total.state, total.value.value());
    };
}

TraceUpdate with_added_gradients(TraceUpdate update) {
    return [update = std::move(update)](Graph& graph, Tensor loss,
                                        const std::vector<ParameterGradient>& gradients) {
        const Totals totals = add_up(graph, loss, gradients);
        std::vector<ParameterGradient> sums;
        for (std::size_t i = 0; i < gradients.size(); ++i)
            sums.push_back({gradients[i].state, totals.gradients[i].value});
        blend_with_kept(graph);
        update(graph, totals.loss.value, sums);
        const OriginScope clearing(graph, Origin{.scope = "", .stage = Stage::update});
        const auto clear = [&](const Total& total) {
            graph.add_update(total.state, broadcast_to(constant(graph, 0.0), total.value.shape()).value());
        };
        clear(totals.loss);
        for (const Total& total : totals.gradients) clear(total);
    };
}

}  // namespace mantissa
