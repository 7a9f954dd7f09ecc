#include "mantissa/train/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/train/forward.h"

namespace mantissa::inline v0 {

namespace {

std::int64_t bytes_of_example(const nn::InputSpec& input) { return Type{input.dtype, input.shape}.bytes(); }

}  // namespace

Predictor::Predictor(const Trainer& trainer)
    : Predictor(trainer.plan().device(), trainer.model(), trainer.plan().options().pipeline,
                trainer.plan().options().batch) {
    parameters_change_ = true;
    bind(trainer.state());
}

Predictor::Predictor(Device& device, const nn::Model& model, const PipelineOptions& pipeline,
                     std::int64_t batch)
    : device_(device), model_(model), pipeline_(pipeline), batch_(batch) {
    if (batch < 1)
        throw UserError(fmt::format("a prediction takes 1 example or more at a time, got {}", batch));
    pipeline_.dump = {};
    many_ = forward_of(batch);
    model_.inputs.resize(model.output.inputs);
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;

std::unique_ptr<Forward> Predictor::forward_of(std::int64_t examples) const {
    const auto trace = [&](Graph& graph) { return nn::trace_output(model_, graph, examples); };
    return std::make_unique<Forward>(device_, trace, pipeline_, model_.output.name);
}

std::vector<State> Predictor::parameters() const {
    std::vector<State> states;
    for (const State& state : many_->plan().graph().states())
        if (is_weight(state)) states.push_back(state);
    return states;
}

void Predictor::bind(const StateBlock& parameters) {
    many_->bind(parameters, {fmt::format("a prediction of {} for {} at a time", model_.name,
                                         nn::batch_text(model_, batch_)),
                             "give fewer at a time"});
    many_->derive();
}

std::int64_t Predictor::values_per_example() const {
    const Graph& graph = many_->plan().graph();
    return graph.type(graph.results().front().value).shape.elements() / batch_;
}

void Predictor::predict_some(Forward& forward, const Batch& examples, std::int64_t first, std::int64_t count,
                             std::vector<float>& to) const {
    const std::int64_t batch = &forward == many_.get() ? batch_ : 1;
    Execution& execution = forward.execution();
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
        const std::int64_t bytes = bytes_of_example(model_.inputs[i]);
        const std::span<const std::byte> some = examples.values()[i].bytes.subspan(
            static_cast<std::size_t>(first * bytes), static_cast<std::size_t>(count * bytes));
        if (count == batch) {
            execution.set_input(model_.inputs[i].name, some);
            continue;
        }
        std::vector<std::byte> filled(static_cast<std::size_t>(batch * bytes));
        std::ranges::copy(some, filled.begin());
        execution.set_input(model_.inputs[i].name, std::span<const std::byte>(filled));
    }
    execution.run();
    const std::vector<std::byte> result = execution.read_result(model_.output.name);
    const Graph& graph = forward.plan().graph();
    const DType dtype = graph.type(graph.results().front().value).dtype;
    for (std::int64_t i = 0; i < count * values_per_example(); ++i)
        to.push_back(static_cast<float>(load_as_f64(result.data(), dtype, i)));
}

Forward& Predictor::one() {
    const bool is_new = !one_;
    if (is_new) {
        one_ = forward_of(1);
        one_->bind(many_->state(), {"a prediction of one example"});
    }
    if (is_new || parameters_change_) one_->derive();
    return *one_;
}

std::vector<float> Predictor::predict(const Batch& examples) {
    const std::int64_t count = std::max<std::int64_t>(1, examples_in(examples, model_));
    require_fit(examples, model_, count);
    if (parameters_change_) many_->derive();
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(count * values_per_example()));
    for (std::int64_t first = 0; first < count; first += batch_) {
        const std::int64_t some = std::min(batch_, count - first);
        predict_some(some == 1 && batch_ > 1 ? one() : *many_, examples, first, some, all);
    }
    return all;
}

}  // namespace mantissa
