#include "mantissa/train/accumulate.h"

#include <fmt/format.h>

#include <bit>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/ranks/shard.h"
#include "mantissa/train/running_statistics.h"

namespace mantissa::inline v0 {

namespace {

/// The sum of 2^level micro-batches.
Tensor kept_sum(Graph& graph, int level, const std::string& name, const Shape& shape) {
    return {graph, graph.add_state({.kind = State::Kind::gradient,
                                    .name = fmt::format("gradient.{}.{}", level, name),
                                    .type = {DType::f32, shape},
                                    .initializer = {}})};
}

Tensor with_kept_sum(int level, const std::string& name, Tensor term) {
    return call1("tree_add", {kept_sum(term.graph(), level, name, term.shape()), term});
}

/// Sums of the micro-batches, and their names.
struct Sums {
    Tensor loss;
    std::vector<Result> metrics;
    std::vector<ParameterGradient> gradients;
};

/// Calls `add` with the name of the loss, of each metric and of each gradient, and with the value in FP32.
/// Returns the results of `add`; the graph has no results then.
template <class Add>
Sums for_each_term(Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients, Add&& add) {
    const auto added = [&](const std::string& name, Tensor term) {
        const OriginScope scope(graph, name);
        return add(name, cast(term, DType::f32));
    };
    Sums all{.loss = added("loss", loss), .metrics = graph.take_results(), .gradients = {}};
    for (Result& metric : all.metrics) metric.value = added(metric.name, {graph, metric.value}).value();
    for (const ParameterGradient& parameter : gradients) {
        const std::string name = graph.state(parameter.state).name;
        all.gradients.push_back({.state = parameter.state, .gradient = added(name, parameter.gradient)});
    }
    return all;
}

/// Sums this rank's sums over all ranks, or this rank's parts of them. `loss` and `gradients`: the results of
/// the backward pass.
void reduce_over_ranks(Graph& graph, Sums& sums, Tensor loss, const std::vector<ParameterGradient>& gradients,
                       const Distribution& distribution, const MayBeCut& may_be_cut) {
    if (distribution.ranks == 1) return;
    Distribution exact = distribution;
    exact.wire = Wire::fp32;
    std::vector<ReducedTerm> numbers{{sums.loss, loss.value().node}};
    for (const Result& metric : sums.metrics) numbers.push_back({{graph, metric.value}, metric.value.node});
    // Among gradients, loss and metrics take no exchange of their own.
    const bool are_among_them = distribution.wire == Wire::fp32;
    std::vector<ReducedTerm> cut, whole;
    if (are_among_them) whole = numbers;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        ParameterGradient& sum = sums.gradients[i];
        const State& parameter = graph.state(sum.state);
        sum.is_shard = distribution.states == States::sharded &&
                       can_be_cut(parameter.type.shape.elements(), distribution.ranks) && may_be_cut &&
                       may_be_cut(graph, parameter);
        (sum.is_shard ? cut : whole).push_back({sum.gradient, gradients[i].gradient.value().node});
    }
    const std::vector<Tensor> parts = reduce_scattered(graph, cut, distribution);
    const std::vector<Tensor> wholes = all_reduced(graph, whole, distribution);
    auto next_part = parts.begin(), next_whole = wholes.begin();
    if (are_among_them) next_whole += std::ssize(numbers);
    for (ParameterGradient& sum : sums.gradients) sum.gradient = sum.is_shard ? *next_part++ : *next_whole++;
    const std::vector<Tensor> reduced = are_among_them ? wholes : all_reduced(graph, numbers, exact);
    sums.loss = reduced[0];
    for (std::size_t i = 0; i < sums.metrics.size(); ++i) sums.metrics[i].value = reduced[i + 1].value();
}

}  // namespace

int kept_levels(std::int64_t micro_batches) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(micro_batches - 1)));
}

int completed_levels(std::int64_t index) { return std::countr_one(static_cast<std::uint64_t>(index)); }

TraceUpdate add_to_gradients(int completed, std::int64_t micro_batches, const Distribution& distribution) {
    return [completed, micro_batches, ranks = distribution.ranks](
               Graph& graph, Tensor loss, const std::vector<ParameterGradient>& gradients) {
        const OriginScope update(graph, Origin{.scope = "", .stage = Stage::update});
        for_each_term(graph, loss, gradients, [&](const std::string& name, Tensor term) {
            for (int level = 0; level < completed; ++level) term = with_kept_sum(level, name, term);
            const Tensor sum = kept_sum(graph, completed, name, term.shape());
            graph.add_update(graph.state_of(sum.value().node), term.value());
            return term;
        });
        ranks == 1 ? blend_into_kept(graph) : keep_statistics(graph, micro_batches);
    };
}

TraceUpdate with_added_gradients(TraceUpdate update, std::int64_t micro_batches,
                                 const Distribution& distribution, const MayBeCut& may_be_cut) {
    return [=, update = std::move(update)](Graph& graph, Tensor loss,
                                           const std::vector<ParameterGradient>& gradients) {
        // Work that prepares a sum over ranks is done while the backward pass goes on.
        const Stage stage = distribution.ranks > 1 ? Stage::backward : Stage::update;
        const OriginScope scope(graph, Origin{.scope = "", .stage = stage});
        auto sums = for_each_term(graph, loss, gradients, [&](const std::string& name, Tensor term) {
            for (int level = 0; level < kept_levels(micro_batches); ++level) {
                const bool is_left = ((micro_batches - 1) >> level) % 2 != 0;
                // This graph has every state of a step, also the state of a level that is complete already.
                if (is_left)
                    term = with_kept_sum(level, name, term);
                else
                    kept_sum(graph, level, name, term.shape());
            }
            return term;
        });
        reduce_over_ranks(graph, sums, loss, gradients, distribution, may_be_cut);
        distribution.ranks == 1 ? blend_with_kept(graph)
                                : blend_all_statistics(graph, micro_batches, distribution);
        for (const Result& metric : sums.metrics) graph.add_result(metric.name, metric.value);
        update(graph, sums.loss, sums.gradients);
    };
}

}  // namespace mantissa
