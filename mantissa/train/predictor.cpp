#include "mantissa/train/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/analysis/example_axis.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/forward.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/training_plan.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::size_t most_shapes = 32;  // as TrainerOptions::plans

}  // namespace

struct Predictor::Plans {
    Device& device;
    nn::Model model;  ///< with only the inputs that the output reads
    PipelineOptions pipeline;
    std::int64_t batch;
    std::unique_ptr<StateBlock> weights = {};      ///< null: the caller's
    std::unique_ptr<Forward> many = {}, one = {};  ///< `one` is made when first needed
    std::unique_ptr<Forward> whole = {};           ///< of all examples, where examples do not stand alone
    std::int64_t examples_of_whole = 0, values = 0;
    std::optional<std::string> why_mixed = {};
    bool parameters_change = false;
    const StateBlock* bound_to = nullptr;
    std::list<Plans> others = {};  ///< for inputs of other shapes, the last used first

    Plans(Device& on, const nn::Model& of, const PipelineOptions& with, std::int64_t at_a_time,
          const StateBlock* parameters = nullptr)
        : device(on), model(of), pipeline(with), batch(at_a_time) {
        if (batch < 1)
            throw UserError(fmt::format("a prediction takes 1 example or more at a time, got {}", batch));
        pipeline.dump = {};
        many = forward_of(batch, parameters);
        model.inputs.resize(model.output.inputs);
        values = values_of(*many, batch);
    }

    /// Whether the examples may be computed in parts, since the graph shows that they stand alone.
    bool stands_alone() {
        if (!why_mixed) {
            Graph graph;
            const std::int64_t some = std::max<std::int64_t>(2, batch);
            const Tensor output = nn::trace_output(model, graph, some);
            std::vector<std::string> batched;
            for (const nn::InputSpec& input : model.inputs)
                if (input.batch_axis == nn::BatchAxis::leading) batched.push_back(input.name);
            why_mixed = why_examples_mix(output, batched, some);
        }
        return why_mixed->empty();
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
        bound_to = &parameters;
    }

    /// The plans for inputs of this shape: these, or others.
    Plans& in(const BatchShape& shape) {
        const auto has_it = [&](const Plans& plans) {
            return std::ranges::equal(shape.inputs, plans.model.inputs, {}, {}, &nn::InputSpec::shape);
        };
        if (has_it(*this)) return *this;
        const auto known = std::ranges::find_if(others, has_it);
        if (known != others.end()) {
            others.splice(others.begin(), others, known);
            return others.front();
        }
        Plans& made =
            others.emplace_front(device, in_shape(model, shape), pipeline, shape.examples, bound_to);
        made.parameters_change = parameters_change;
        made.bind(*bound_to);
        if (others.size() > most_shapes) others.pop_back();
        return made;
    }

    /// The graph kept in `place`, for so many examples.
    Forward& other(std::unique_ptr<Forward>& place, std::int64_t examples) {
        const bool is_new = !place;
        if (is_new) {
            place = forward_of(examples, &many->state());
            place->bind(many->state(), {fmt::format("a prediction of {}", nn::batch_text(model, examples))});
        }
        if (is_new || parameters_change) place->derive();
        return *place;
    }

    Forward& all_of(std::int64_t count) {
        if (count == batch) return *many;
        if (count != examples_of_whole) whole.reset();
        examples_of_whole = count;
        return other(whole, count);
    }

    static Type result_type(const Forward& forward) {
        const Graph& graph = forward.plan().graph();
        return graph.type(graph.results().front().value);
    }
    static std::int64_t values_of(const Forward& forward, std::int64_t examples) {
        return result_type(forward).shape.elements() / examples;
    }

    /// Appends the output of `count` examples from `first` on; the graph computes `computed` at a time.
    void predict(Forward& forward, std::int64_t computed, const Batch& examples, std::int64_t first,
                 std::int64_t count, std::vector<float>& to) {
        values = values_of(forward, computed);
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
        const DType dtype = result_type(forward).dtype;
        for (std::int64_t i = 0; i < count * values; ++i)
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

std::int64_t Predictor::values_per_example() const { return plans_->values; }

std::vector<float> Predictor::predict(const Batch& examples) {
    const BatchShape shape =
        shape_of(examples, plans_->model, std::max<std::int64_t>(1, examples_in(examples, plans_->model)));
    const std::int64_t count = shape.examples;
    Plans& plans = plans_->in(shape);
    plans_->values = plans.values;
    if (plans.parameters_change) plans.many->derive();
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(count * values_per_example()));
    if (count != plans.batch && !plans.stands_alone()) {
        plans.predict(plans.all_of(count), count, examples, 0, count, all);
        plans_->values = plans.values;
        return all;
    }
    for (std::int64_t first = 0; first < count; first += plans.batch) {
        const std::int64_t some = std::min(plans.batch, count - first);
        if (some == 1 && plans.batch > 1)
            plans.predict(plans.other(plans.one, 1), 1, examples, first, some, all);
        else
            plans.predict(*plans.many, plans.batch, examples, first, some, all);
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
