#include "mantissa/train/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/count_text.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/training_plan.h"
#include "mantissa/train/weights.h"

namespace mantissa::inline v0 {

struct Predictor::Plans {
    Device& device;
    nn::Model model;  ///< with those inputs alone that the output is made of
    PipelineOptions pipeline;
    std::int64_t batch;
    std::unique_ptr<StateBlock> weights = {};      ///< null: another's
    std::unique_ptr<Forward> many = {}, one = {};  ///< `one` is made when it is first needed
    bool parameters_change = false;

    Plans(Device& on, const nn::Model& of, const PipelineOptions& with, std::int64_t at_a_time,
          const StateBlock* parameters = nullptr)
        : device(on), model(of), pipeline(with), batch(at_a_time) {
        if (batch < 1)
            throw UserError(fmt::format("a prediction takes 1 example or more at a time, got {}", batch));
        pipeline.dump = {};
        many = forward_of(batch, parameters);
        model.inputs.resize(model.output.inputs);
    }

    std::unique_ptr<Forward> forward_of(std::int64_t examples, const StateBlock* parameters) const {
        const auto trace = [&](Graph& graph) { return nn::trace_output(model, graph, examples); };
        return std::make_unique<Forward>(device, trace, pipeline, model.output.name, parameters);
    }

    void bind(const StateBlock& parameters) {
        const Graph& graph = many->plan().graph();
        for (const State& state : graph.states())
            if (is_weight(state) && !parameters.has(state.name))
                refuse(fmt::format("the output of model {}", model.name), graph.node(state.node).origin,
                       fmt::format("'{}' was not trained: the loss has no state of that name", state.name));
        many->bind(parameters, {fmt::format("a prediction of {} for {} at a time", model.name,
                                            nn::batch_text(model, batch)),
                                "give fewer at a time"});
        many->derive();
    }

    Forward& only_one() {
        const bool is_new = !one;
        if (is_new) {
            one = forward_of(1, &many->state());
            one->bind(many->state(), {"a prediction of one example"});
        }
        if (is_new || parameters_change) one->derive();
        return *one;
    }

    Type result_type() const {
        const Graph& graph = many->plan().graph();
        return graph.type(graph.results().front().value);
    }
    std::int64_t values_per_example() const { return result_type().shape.elements() / batch; }

    /// Appends the output of `count` of the examples, from `first` on.
    void predict(Forward& forward, const Batch& examples, std::int64_t first, std::int64_t count,
                 std::vector<float>& to) const {
        const std::int64_t computed = &forward == many.get() ? batch : 1;
        Execution& execution = forward.execution();
        for (std::size_t i = 0; i < model.inputs.size(); ++i) {
            const nn::InputSpec& input = model.inputs[i];
            const std::span<const std::byte> all = examples.values()[i].bytes;
            const std::int64_t bytes = input.type(1).bytes();
            const bool is_whole = input.batch_axis == nn::BatchAxis::none;
            const std::span<const std::byte> some =
                is_whole ? all
                         : all.subspan(static_cast<std::size_t>(first * bytes),
                                       static_cast<std::size_t>(count * bytes));
            if (is_whole || count == computed) {
                execution.set_input(input.name, some);
                continue;
            }
            std::vector<std::byte> filled(static_cast<std::size_t>(computed * bytes));
            std::ranges::copy(some, filled.begin());
            execution.set_input(input.name, std::span<const std::byte>(filled));
        }
        execution.run();
        const std::vector<std::byte> result = execution.read_result(model.output.name);
        const DType dtype = result_type().dtype;
        for (std::int64_t i = 0; i < count * values_per_example(); ++i)
            to.push_back(static_cast<float>(load_as_f64(result.data(), dtype, i)));
    }
};

Predictor::Predictor(const Trainer& trainer)
    : plans_(new Plans(trainer.plan().device(), trainer.model(), trainer.plan().pipeline(),
                       trainer.plan().options().batch, &trainer.state())) {
    plans_->parameters_change = true;
    bind(trainer.state());
}

Predictor::Predictor(Device& device, const nn::Model& model, const PredictorOptions& options)
    : plans_(new Plans(device, model, all_passes(device.target(), options.policy), options.batch)) {}

Predictor::Predictor(Device& device, const nn::Model& model, const std::filesystem::path& weights,
                     const PredictorOptions& options)
    : Predictor(device, model, options) {
    plans_->weights = std::make_unique<StateBlock>(device, parameters());
    load_weights(model, weights, *plans_->weights);
    bind(*plans_->weights);
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;

std::vector<State> Predictor::parameters() const {
    std::vector<State> states;
    for (const State& state : plans_->many->plan().graph().states())
        if (is_weight(state)) states.push_back(state);
    return states;
}

void Predictor::bind(const StateBlock& parameters) { plans_->bind(parameters); }

std::int64_t Predictor::values_per_example() const { return plans_->values_per_example(); }

std::vector<float> Predictor::predict(const Batch& examples) {
    Plans& plans = *plans_;
    const std::int64_t count = std::max<std::int64_t>(1, examples_in(examples, plans.model));
    require_fit(examples, plans.model, count);
    if (plans.parameters_change) plans.many->derive();
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(count * values_per_example()));
    for (std::int64_t first = 0; first < count; first += plans.batch) {
        const std::int64_t some = std::min(plans.batch, count - first);
        plans.predict(some == 1 && plans.batch > 1 ? plans.only_one() : *plans.many, examples, first, some,
                      all);
    }
    return all;
}

double accuracy(std::span<const float> scores, std::span<const std::int32_t> classes) {
    if (classes.empty() || scores.empty() || scores.size() % classes.size() != 0)
        throw UserError(fmt::format("{} of {}: expected as many of each", count_text(scores.size(), "score"),
                                    count_text(classes.size(), "example")));
    const std::size_t each = scores.size() / classes.size();
    std::size_t right = 0;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const auto of = scores.subspan(i * each, each);
        const auto id = static_cast<std::size_t>(classes[i]);
        if (classes[i] < 0 || id >= each)
            throw UserError(fmt::format("example {} is of class {}, but there are scores of {}", i,
                                        classes[i], count_text(each, "class", "classes")));
        right +=
            static_cast<std::size_t>(std::ranges::max_element(of) - of.begin()) == id && !std::isnan(of[id]);
    }
    return static_cast<double>(right) / static_cast<double>(classes.size());
}

}  // namespace mantissa
