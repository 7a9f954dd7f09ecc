// The loop over time and its gradient, a loop that goes back.
#include <algorithm>
#include <map>

#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/inline_body.h"
#include "mantissa/graph/ops/rules.h"
#include "mantissa/graph/scan.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

Type with_steps(const Type& part, std::int64_t steps) {
    std::vector<std::int64_t> extents = part.shape.extents();
    extents.insert(extents.begin(), steps);
    return {part.dtype, Shape(std::move(extents))};
}

std::vector<Type> scan_types(const OpCall& call) {
    const ScanForm form = scan_form(call.attributes);
    const Graph& body = call.attributes.body("body").graph();
    expect(form.steps >= 0, "steps must not be negative, got {}", form.steps);
    expect(call.inputs.size() == body.inputs().size(), "the body has {} inputs, got {} operands",
           body.inputs().size(), call.inputs.size());
    expect(body.states().empty() && body.updates().empty(), "the body of a scan keeps nothing of its own");
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const Type& part = body.node(body.inputs()[i]).outputs[0];
        const bool sequence = i >= form.states && i < form.states + form.sequences;
        const Type wanted = sequence ? with_steps(part, form.steps) : part;
        expect(call.inputs[i] == wanted, "operand {} must be {}, got {}", i, wanted.text(),
               call.inputs[i].text());
    }
    expect(body.results().size() >= form.states, "the body gives {} states, and {} are given",
           body.results().size(), form.states);
    std::vector<Type> types;
    for (std::size_t i = 0; i < body.results().size(); ++i) {
        const Type& given = body.type(body.results()[i].value);
        if (i >= form.states) {
            types.push_back(with_steps(given, form.steps));
            continue;
        }
        expect(given == call.inputs[i], "the body makes {} of state {}, which is {}", given.text(), i,
               call.inputs[i].text());
        types.push_back(form.keeps_states ? with_steps(given, form.steps + 1) : given);
    }
    return types;
}

std::int64_t scan_flops(std::span<const Type>, std::span<const Type>, const Attributes& attributes) {
    const Graph& body = attributes.body("body").graph();
    std::int64_t flops = 0;
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        flops += node.op->cost(body.input_types(node), node.outputs, node.attributes).flops;
    }
    return scan_form(attributes).steps * flops;
}

Tensor zeros_like(Graph& graph, const Type& type) {
    return broadcast_to(constant(graph, 0.0, type.dtype), type.shape);
}

/// The gradient of an operand that each step reads whole, if only two factors, or one term, with rows differ
/// from step to step. Then these are kept for all steps, and one product, or one sum, over all rows of all
/// steps makes the gradient.
struct Hoisted {
    std::vector<Value> rows;              ///< of the step's graph: two factors [B, P] and [B, Q], or a term
    std::vector<std::int64_t> axes = {};  ///< of the term, which are summed
};

std::optional<Hoisted> hoisted(const Tensor& gradient) {
    const Graph& graph = gradient.graph();
    const Node& node = graph.node(gradient.value().node);
    if (node.op->name == "matmul" && node.inputs.size() == 2 && node.outputs[0].shape.rank() == 2 &&
        node.attributes.flag("transpose_a") && !node.attributes.flag("transpose_b"))
        return Hoisted{node.inputs};
    if (node.op->name == "sum" && !node.attributes.flag("keep") && !node.attributes.list("axes").empty())
        return Hoisted{node.inputs, node.attributes.list("axes")};
    return std::nullopt;
}

/// The loop that goes back over the steps of another.
class ScanGradient {
  public:
    explicit ScanGradient(const GradientCall& call)
        : call_(call), form_(scan_form(call.attributes)), body_(call.attributes.body("body").graph()) {
        if (!form_.keeps_states)
            throw UserError("the gradient of a loop has no gradient: second derivatives are not taken");
    }

    std::vector<Tensor> run() {
        differentiate_step();
        choose_outputs();
        const std::vector<Tensor> results = add_loop();
        return gradients(results);
    }

  private:
    std::size_t first_whole() const { return form_.states + form_.sequences; }
    const Type& type_of_input(std::size_t i) const { return body_.node(body_.inputs()[i]).outputs[0]; }
    const Type& type_of_result(std::size_t i) const { return body_.type(body_.results()[i].value); }
    bool wanted(std::size_t i) const { return call_.wanted[i] && is_floating(type_of_input(i).dtype); }

    /// Records a graph of one step: the body once more, and the gradients of its inputs by its results. The
    /// results themselves are there for all steps, so they are read.
    void differentiate_step() {
        std::vector<Tensor> inputs, results, cotangents, wrt;
        for (std::size_t i = 0; i < body_.inputs().size(); ++i)
            inputs.emplace_back(step_, step_.add_input(fmt::format("x{}", i), type_of_input(i)));
        for (std::size_t i = 0; i < body_.results().size(); ++i)
            kept_.push_back(step_.add_input(fmt::format("r{}", i), type_of_result(i)).node);
        const std::vector<Tensor> given = inline_body(step_, body_, inputs);
        for (std::size_t i = 0; i < given.size(); ++i) {
            const bool state = i < form_.states && is_floating(type_of_result(i).dtype);
            if (!state && !(i >= form_.states && call_.cotangents[i])) continue;
            by_result_.push_back(i);
            results.push_back(given[i]);
            cotangents.emplace_back(step_, step_.add_input(fmt::format("d{}", i), type_of_result(i)));
        }
        // States pass gradients on from step to step in any case.
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (is_floating(type_of_input(i).dtype) && (i < form_.states || call_.wanted[i])) {
                by_input_.push_back(i);
                wrt.push_back(inputs[i]);
            }
        gradients_ = backpropagate(step_, results, cotangents, wrt);
        for (std::size_t i = 0; i < gradients_.size(); ++i)
            gradients_[i] = gradients_[i] ? cast(gradients_[i], type_of_input(by_input_[i]).dtype)
                                          : zeros_like(step_, type_of_input(by_input_[i]));
        for (std::size_t i = 0; i < given.size(); ++i)
            if (!is_source(step_.node(given[i].value().node)))
                step_.replace_uses(given[i].value(), {kept_[i], 0}, 0);
    }

    /// Whether results of the step's graph depend on each of its nodes.
    std::vector<bool> needed_nodes() const {
        std::vector<bool> needed(step_.size());
        for (const Result& result : step_.results()) needed[result.value.node] = true;
        for (NodeId id = step_.end() - 1; id >= 0; --id)
            if (needed[id])
                for (const Value& input : step_.node(id).inputs) needed[input.node] = true;
        return needed;
    }

    /// Chooses the results of a step's graph: gradients of states, gradients summed over steps, and outputs.
    void choose_outputs() {
        for (std::size_t i = 0; i < by_input_.size(); ++i)
            if (by_input_[i] < form_.states) carried_.push_back(i);
        for (std::size_t i = 0; i < by_input_.size(); ++i) {
            if (by_input_[i] < form_.states) continue;
            if (by_input_[i] < first_whole()) {
                output(gradients_[i].value());
            } else if (const auto found = hoisted(gradients_[i])) {
                for (const Value& rows : found->rows)
                    if (!is_sequence(rows)) output(rows);
            } else {
                summed_.push_back(i);
            }
        }
        for (const std::size_t i : carried_) step_.add_result("", gradients_[i].value());
        for (const std::size_t i : summed_) step_.add_result("", gradients_[i].value());
        for (const Value& value : outputs_) step_.add_result("", value);
    }

    void output(Value value) {
        if (std::ranges::find(outputs_, value) == outputs_.end()) outputs_.push_back(value);
    }

    /// Whether a value of the step's graph is a state before the step, a part of a sequence, or a result of
    /// the step that is kept.
    bool is_sequence(Value value) const {
        const auto& inputs = step_.inputs();
        const auto end = inputs.begin() + static_cast<std::ptrdiff_t>(first_whole());
        return std::find(inputs.begin(), end, value.node) != end ||
               std::ranges::find(kept_, value.node) != kept_.end();
    }

    /// The states before each step, [steps, ...].
    Tensor states_before(std::size_t state) const {
        const std::int64_t first = form_.first_before();
        return slice(call_.outputs[state], 0, first, first + form_.steps);
    }

    /// The gradient of the states after each step, among the gradients of all states, [steps + 1, ...].
    Tensor after_each_step(const Tensor& d) const {
        const std::int64_t first = form_.first_after();
        return slice(d, 0, first, first + form_.steps);
    }

    Tensor whole_sequence(std::size_t input) const {
        return input < form_.states ? states_before(input) : call_.inputs[input];
    }

    /// A result of the body for all steps.
    Tensor kept_result(std::size_t result) const {
        const Tensor& all = call_.outputs[result];
        return result < form_.states ? after_each_step(all) : all;
    }

    /// The loop's body around the step's graph. It adds the gradients that readers of a state after its step
    /// give to the state's gradient, and each step's sums to the earlier sums.
    Graph body_of_loop(std::vector<Tensor>& operands) {
        Graph loop;
        const std::vector<bool> needed = needed_nodes();
        std::vector<Tensor> to_step(step_.inputs().size());
        const auto add = [&](const Type& type, const Tensor& operand) {
            operands.push_back(operand);
            return Tensor(loop, loop.add_input(fmt::format("y{}", operands.size()), type));
        };
        std::map<std::size_t, Tensor> carried;  // by state
        std::vector<Tensor> sums;
        Graph& graph = call_.graph;
        for (const std::size_t i : carried_) {
            const Type& type = type_of_input(by_input_[i]);
            carried[by_input_[i]] = add(type, zeros_like(graph, type));
        }
        for (const std::size_t i : summed_) {
            const Type& type = type_of_input(by_input_[i]);
            sums.push_back(add(type, zeros_like(graph, type)));
        }
        loop_states_ = operands.size();
        for (std::size_t i = 0; i < first_whole(); ++i)
            if (needed[step_.inputs()[i]]) to_step[i] = add(type_of_input(i), whole_sequence(i));
        for (std::size_t i = 0; i < kept_.size(); ++i)
            if (needed[kept_[i]]) to_step[body_.inputs().size() + i] = add(type_of_result(i), kept_result(i));
        for (std::size_t i = 0; i < by_result_.size(); ++i) {
            const std::size_t result = by_result_[i];
            Tensor& given = to_step[body_.inputs().size() + kept_.size() + i];
            const Tensor d = call_.cotangents[result];
            if (result >= form_.states) {
                given = add(type_of_result(result), cast(d, type_of_result(result).dtype));
            } else {
                given = carried.at(result);
                if (d)
                    given = given + add(type_of_result(result),
                                        cast(after_each_step(d), type_of_result(result).dtype));
            }
        }
        loop_sequences_ = operands.size() - loop_states_;
        for (std::size_t i = first_whole(); i < body_.inputs().size(); ++i)
            if (needed[step_.inputs()[i]]) to_step[i] = add(type_of_input(i), call_.inputs[i]);
        std::vector<Tensor> results = inline_body(loop, step_, to_step);
        for (std::size_t i = 0; i < sums.size(); ++i)
            results[carried_.size() + i] = sums[i] + results[carried_.size() + i];
        for (const Tensor& result : results) loop.add_result("", result.value());
        return loop;
    }

    std::vector<Tensor> add_loop() {
        std::vector<Tensor> operands;
        Graph body = body_of_loop(operands);
        return call(call_.graph, "scan", operands,
                    {{"backward", !form_.backward},
                     {"body", Body(std::move(body))},
                     {"keeps_states", false},
                     {"sequences", static_cast<std::int64_t>(loop_sequences_)},
                     {"states", static_cast<std::int64_t>(loop_states_)},
                     {"steps", form_.steps}});
    }

    /// A value of the step's graph for all steps.
    Tensor of_all_steps(Value value, const std::vector<Tensor>& results) const {
        if (const auto kept = std::ranges::find(kept_, value.node); kept != kept_.end())
            return kept_result(static_cast<std::size_t>(kept - kept_.begin()));
        if (is_sequence(value)) {
            const auto at = std::ranges::find(step_.inputs(), value.node) - step_.inputs().begin();
            return whole_sequence(static_cast<std::size_t>(at));
        }
        const auto at = std::ranges::find(outputs_, value) - outputs_.begin();
        return results[loop_states_ + static_cast<std::size_t>(at)];
    }

    Tensor from_hoisted(const Hoisted& of, DType dtype, const std::vector<Tensor>& results) const {
        const auto rows = [&](Value value) {
            const Tensor all = of_all_steps(value, results);
            return reshape(all, {all.dim(0) * all.dim(1), all.dim(2)});
        };
        if (of.rows.size() == 2)
            return matmul(rows(of.rows[0]), rows(of.rows[1]), {.transpose_a = true, .output = dtype});
        std::vector<std::int64_t> axes{0};
        for (const std::int64_t axis : of.axes) axes.push_back(axis + 1);
        return cast(sum(of_all_steps(of.rows[0], results), axes), dtype);
    }

    std::vector<Tensor> gradients(const std::vector<Tensor>& results) const {
        std::vector<Tensor> gradients(call_.inputs.size());
        for (std::size_t i = 0; i < by_input_.size(); ++i) {
            const std::size_t input = by_input_[i];
            if (!wanted(input)) continue;
            Tensor& gradient = gradients[input];
            if (input < form_.states) {
                const auto at = std::ranges::find(carried_, i) - carried_.begin();
                gradient = results[static_cast<std::size_t>(at)];
                if (const Tensor d = call_.cotangents[input])
                    gradient =
                        gradient + cast(reshape(slice(d, 0, form_.state_after(0), form_.state_after(0) + 1),
                                                gradient.shape()),
                                        gradient.dtype());
            } else if (input < first_whole()) {
                gradient = of_all_steps(gradients_[i].value(), results);
            } else if (const auto found = hoisted(gradients_[i])) {
                gradient = from_hoisted(*found, type_of_input(input).dtype, results);
            } else {
                const auto at = std::ranges::find(summed_, i) - summed_.begin();
                gradient = results[carried_.size() + static_cast<std::size_t>(at)];
            }
        }
        return gradients;
    }

    const GradientCall& call_;
    ScanForm form_;
    const Graph& body_;
    Graph step_;
    std::vector<std::size_t> by_result_;         // results of the body whose gradients a step is given
    std::vector<NodeId> kept_;                   // inputs of step_ by result of the body, read for all steps
    std::vector<std::size_t> by_input_;          // inputs of the body whose gradients it gives
    std::vector<Tensor> gradients_;              // of these, in step_
    std::vector<std::size_t> carried_, summed_;  // indices into by_input_: of states; of whole operands
    std::vector<Value> outputs_;                 // of a step, in step_
    std::size_t loop_states_ = 0, loop_sequences_ = 0;
};

std::vector<Tensor> scan_gradient(const GradientCall& call) { return ScanGradient(call).run(); }

}  // namespace

ScanForm scan_form(const Attributes& attributes) {
    return {.states = static_cast<std::size_t>(attributes.integer("states")),
            .sequences = static_cast<std::size_t>(attributes.integer("sequences")),
            .steps = attributes.integer("steps"),
            .backward = attributes.flag("backward"),
            .keeps_states = attributes.flag("keeps_states")};
}

std::span<const Op> scan_ops() {
    static const std::vector<Op> rows = {
        {.name = "scan",
         .max_inputs = 1 << 16,
         .types = scan_types,
         .gradient = scan_gradient,
         .autocast = AutocastClass::fp32,
         .flops = scan_flops},
    };
    return rows;
}

Scanned scan(std::span<const Tensor> states, std::span<const Tensor> sequences, std::span<const Tensor> whole,
             const ScanBody& record, Steps steps, Where at) {
    if (sequences.empty()) throw UserError("scan: expected one sequence or more, whose first axis is time");
    Graph& graph = sequences[0].graph(at);
    const LineScope line(graph, at);
    Graph body;
    body.origin = graph.origin;
    std::vector<Tensor> operands, inputs[3];
    const auto add = [&](const Tensor& operand, const Type& type, std::vector<Tensor>& to) {
        operands.push_back(operand);
        to.emplace_back(body, body.add_input(fmt::format("x{}", operands.size() - 1), type));
    };
    for (const Tensor& state : states) add(state, state.type(), inputs[0]);
    for (const Tensor& sequence : sequences) {
        std::vector<std::int64_t> part = sequence.shape().extents();
        if (part.empty() || part[0] != sequences[0].dim(0))
            refuse("scan", graph.origin,
                   fmt::format("sequences must have one number of steps, got {} and {}",
                               sequences[0].type().text(), sequence.type().text()));
        part.erase(part.begin());
        add(sequence, {sequence.dtype(), Shape(std::move(part))}, inputs[1]);
    }
    for (const Tensor& each : whole) add(each, each.type(), inputs[2]);
    const ScanStep step = record(inputs[0], inputs[1], inputs[2]);
    if (step.states.size() != states.size())
        refuse("scan", graph.origin,
               fmt::format("the body gives {} states of {}", step.states.size(), states.size()));
    for (const Tensor& each : step.states) body.add_result("", each.value());
    for (const Tensor& each : step.outputs) body.add_result("", each.value());
    const std::vector<Tensor> all = call(graph, "scan", operands,
                                         {{"backward", steps == Steps::backward},
                                          {"body", Body(std::move(body))},
                                          {"keeps_states", true},
                                          {"sequences", std::ssize(sequences)},
                                          {"states", std::ssize(states)},
                                          {"steps", sequences[0].dim(0)}});
    const auto first_output = all.begin() + std::ssize(states);
    return {{all.begin(), first_output}, {first_output, all.end()}};
}

}  // namespace mantissa
