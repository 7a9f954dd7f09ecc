#include "mantissa/nn/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/base/name_pattern.h"
#include "mantissa/base/printable.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/nn/metrics.h"
#include "mantissa/passes/differentiate.h"

namespace mantissa::inline v0::nn {

namespace {

void require_training(const Mode& mode) {
    if (!mode.is_training())
        throw UserError("a Mode of evaluation has no random numbers; ask Mode::is_training first");
}

}  // namespace

Mode Mode::training(Graph& graph) {
    Mode mode;
    mode.random_ = std::make_shared<Random>(Random{.graph = &graph});
    return mode;
}

Mode Mode::evaluation_of_targets() {
    Mode mode;
    mode.may_lack_targets_ = true;
    return mode;
}

const RandomState& Mode::random() const {
    require_training(*this);
    if (!random_->state.seed) {
        Graph& graph = *random_->graph;
        const OriginScope outermost(graph, Origin{});
        random_->state = {{graph, graph.add_input("random_seed", {DType::i64, {}})},
                          {graph, graph.add_input("random_step", {DType::i64, {}})}};
    }
    return random_->state;
}

std::int64_t Mode::next_random_operation() const {
    require_training(*this);
    return random_->next++;
}

namespace {

constexpr std::array<std::string_view, 3> inputs_of_the_trainer = {"learning_rate", "random_seed",
                                                                   "random_step"};

void validate_inputs(const Model& model) {
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        const std::string& name = model.inputs[i].name;
        if (std::ranges::find(inputs_of_the_trainer, name) != inputs_of_the_trainer.end())
            throw UserError(
                fmt::format("model {}: an input of it is called '{}', as one that training adds; "
                            "give it another name than {}",
                            model.name, name, fmt::join(inputs_of_the_trainer, ", ")));
        for (std::size_t before = 0; before < i; ++before)
            if (model.inputs[before].name == name)
                throw UserError(fmt::format("model {}: two inputs are called '{}'", model.name, name));
    }
}

/// The first `count` inputs of the model on so many examples, added to the graph.
std::vector<Tensor> traced_inputs(const Model& model, Graph& graph, std::int64_t batch, std::size_t count) {
    std::vector<Tensor> inputs;
    for (const InputSpec& input : std::span(model.inputs).first(count))
        inputs.emplace_back(graph, graph.add_input(input.name, input.type(batch)));
    return inputs;
}

}  // namespace

Type InputSpec::type(std::int64_t examples) const {
    if (batch_axis == BatchAxis::none) return {dtype, shape};
    std::vector<std::int64_t> extents{examples};
    extents.insert(extents.end(), shape.extents().begin(), shape.extents().end());
    return {dtype, Shape(std::move(extents))};
}

InputSpec numbers(std::string name, Shape shape, BatchAxis batch_axis) {
    return {std::move(name), DType::f32, std::move(shape), batch_axis};
}

InputSpec ids(std::string name, Shape shape, BatchAxis batch_axis) {
    return {std::move(name), DType::i32, std::move(shape), batch_axis};
}

Tensor trace_loss(const Model& model, Graph& graph, std::int64_t batch, const Mode& mode) {
    if (!model.loss)
        throw UserError(
            fmt::format("model {} has no loss: set Model::loss to a function that records it", model.name));
    validate_inputs(model);
    const std::vector<Tensor> inputs = traced_inputs(model, graph, batch, model.inputs.size());
    const Tensor loss = model.loss(graph, inputs, mode);
    if (!loss) throw UserError(fmt::format("model {}: its loss is an empty tensor", model.name));
    if (loss.rank() != 0 || !is_floating(loss.dtype()))
        throw UserError(fmt::format("model {}: its loss must be one floating number, got {}; take the mean",
                                    model.name, loss.type().text()));
    return loss;
}

void metric(std::string_view name, Tensor value, Where at) {
    Graph& graph = value.graph(at);
    const LineScope line(graph, at);
    const auto refuse_if = [&](bool holds, const std::string& what) {
        if (holds) refuse(fmt::format("metric '{}'", name), graph.origin, what);
    };
    refuse_if(name.empty(), "it has no name");
    const std::string result = std::string(metric_prefix) + std::string(name);
    refuse_if(std::ranges::find(graph.results(), result, &Result::name) != graph.results().end(),
              "the trace has one of this name");
    refuse_if(!is_floating(value.dtype()) && value.dtype() != DType::boolean,
              fmt::format("it is floating or bool, got {}; cast it", value.type().text()));
    // FP32 under any policy; the + 0.0 makes a value of its own even from a parameter.
    const PrecisionScope exact(graph, DType::f32);
    const Tensor number = cast(value, DType::f32);
    graph.add_result(result, ((number.rank() == 0 ? number : mean(number)) + 0.0).value());
}

Tensor trace_output(const Model& model, Graph& graph, std::int64_t batch) {
    if (!model.output.trace)
        throw UserError(fmt::format("model {} predicts nothing: give it an output", model.name));
    if (model.output.inputs < 1 || model.output.inputs > model.inputs.size())
        throw UserError(fmt::format("model {}: its output is made of {}, but it has {}", model.name,
                                    count_text(model.output.inputs, "input"), model.inputs.size()));
    validate_inputs(model);
    const std::vector<Tensor> inputs = traced_inputs(model, graph, batch, model.output.inputs);
    const Tensor output = model.output.trace(graph, inputs, Mode{});
    graph.take_results();  // a metric belongs to the loss
    if (!output) throw UserError(fmt::format("model {}: its output is an empty tensor", model.name));
    if (!is_floating(output.dtype()) || output.rank() < 1 || output.type().shape[0] != batch)
        throw UserError(
            fmt::format("model {}: its output must be floating, with a row for each of {} "
                        "examples, got {}",
                        model.name, batch, output.type().text()));
    return output;
}

namespace {

/// Throws UserError for a pattern that freezes nothing: it is a slip.
void require_used(std::span<const std::string> patterns, const Graph& graph, const std::string& model) {
    std::vector<std::string> names;
    for (const State& state : graph.states())
        if (is_weight(state)) names.push_back(state.name);
    for (const std::string& pattern : patterns) {
        const auto is_named = [&](std::string_view name) { return matches(pattern, name); };
        if (std::ranges::any_of(names, is_named)) continue;
        throw UserError(fmt::format("model {} has no weight that '{}' names, to be frozen; it has {}", model,
                                    pattern, names_text(names)));
    }
}

/// By node: whether a gradient depends on it.
std::vector<bool> needed_for(const std::vector<ParameterGradient>& gradients, const Graph& graph) {
    std::vector<bool> is_needed(graph.size());
    for (const ParameterGradient& each : gradients) is_needed[each.gradient.value().node] = true;
    for (NodeId i = graph.end(); i-- > 0;)
        if (is_needed[i])
            for (const Value& input : graph.node(i).inputs) is_needed[input.node] = true;
    return is_needed;
}

}  // namespace

ModelFacts facts_of(const Model& model, std::int64_t batch, std::span<const std::string> frozen) {
    Graph graph;
    graph.freeze({frozen.begin(), frozen.end()});
    const Value loss = trace_loss(model, graph, batch, Mode::training(graph)).value();
    return facts_of(model, batch, frozen, std::move(graph), loss);
}

ModelFacts facts_of(const Model& model, std::int64_t batch, std::span<const std::string> frozen, Graph graph,
                    Value loss) {
    ModelFacts facts;
    for (const State& state : graph.states()) {
        if (state.kind != State::Kind::parameter) continue;
        facts.parameters += state.type.shape.elements();
        if (state.frozen) facts.frozen += state.type.shape.elements();
    }
    if (facts.parameters == 0)
        throw UserError(fmt::format("model {} has no parameters, so there is nothing to train", model.name));
    require_used(frozen, graph, model.name);
    if (facts.frozen == facts.parameters)
        throw UserError(
            fmt::format("model {}: all {} parameters are frozen, so there is nothing to train; freeze fewer",
                        model.name, facts.parameters));
    if (model.flops_per_example && facts.frozen == 0) {
        facts.flops_per_example = *model.flops_per_example;
        return facts;
    }
    const std::vector<ParameterGradient> gradients = differentiate(graph, {graph, loss});
    const std::vector<bool> is_needed = needed_for(gradients, graph);
    for (NodeId i = 0; i < graph.end(); ++i) {
        const Node& node = graph.node(i);
        if (node.op->autocast != AutocastClass::lower || !node.op->flops) continue;
        // If all weights are trained, the gradient by the model's input counts, as in published formulas.
        if (facts.frozen > 0 && !is_needed[i]) continue;
        facts.flops_per_example +=
            static_cast<double>(node.op->flops(graph.input_types(node), node.outputs, node.attributes));
    }
    facts.flops_per_example /= static_cast<double>(batch);
    return facts;
}

void Trace::refuse(std::size_t wanted, std::size_t given) {
    throw UserError(fmt::format("the model has {}, and what is recorded of them takes {}",
                                count_text(given, "input"), wanted));
}

const WeightFiles& files_of(const Model& model) {
    static const WeightFiles none;
    return model.files ? *model.files : none;
}

std::string batch_text(const Model& model, std::int64_t batch) {
    return model.units_per_example == 1
               ? fmt::format("{} {}", batch, model.unit)
               : fmt::format("{} x {} {}", batch, model.units_per_example, model.unit);
}

}  // namespace mantissa::nn
