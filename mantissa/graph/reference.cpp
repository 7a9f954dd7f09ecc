#include "mantissa/graph/reference.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/scan.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

namespace {

ReferenceTensor fed(const Node& node, const ReferenceFeed& feed) {
    const std::string& name = node.attributes.word("name");
    const auto entry = feed.find(name);
    if (entry == feed.end()) throw UserError(fmt::format("the reference was given no value for '{}'", name));
    const Type& type = node.outputs[0];
    if (static_cast<std::int64_t>(entry->second.size()) != type.shape.elements())
        throw UserError(
            fmt::format("'{}' is {}, but {} values were given", name, type.text(), entry->second.size()));
    return {type, entry->second};
}

/// The value of a composite's definition.
std::vector<ReferenceTensor> evaluate_composite(const Node& node,
                                                std::span<const ReferenceTensor* const> inputs) {
    Graph graph;
    ReferenceFeed feed;
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::string name = fmt::format("operand {}", i);
        operands.emplace_back(graph, graph.add_input(name, inputs[i]->type));
        feed[name] = inputs[i]->values;
    }
    const std::vector<Tensor> outputs = node.op->definition({graph, operands, node.attributes});
    const ReferenceRun run(graph, feed);
    std::vector<ReferenceTensor> values;
    for (const Tensor& output : outputs) values.push_back(run[output.value()]);
    return values;
}

/// A loop is its steps one after another.
std::vector<ReferenceTensor> evaluate_scan(const Node& node, std::span<const ReferenceTensor* const> inputs) {
    const ScanForm form = scan_form(node.attributes);
    const Graph& body = node.attributes.body("body").graph();
    const auto name_of_input = [&](std::size_t i) -> const std::string& {
        return body.node(body.inputs()[i]).attributes.word("name");
    };
    ReferenceFeed feed;
    std::vector<ReferenceTensor> outputs;
    for (const Type& type : node.outputs)
        outputs.push_back({type, std::vector<double>(static_cast<std::size_t>(type.shape.elements()))});
    const auto place = [&](std::size_t output, std::int64_t at, const std::vector<double>& values) {
        std::ranges::copy(values, outputs[output].values.begin() + at * std::ssize(values));
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        feed[name_of_input(i)] = inputs[i]->values;
        if (i < form.states) place(i, form.keeps_states ? form.state_after(0) : 0, inputs[i]->values);
    }
    for (std::int64_t step = 0; step < form.steps; ++step) {
        for (std::size_t i = form.states; i < form.states + form.sequences; ++i) {
            const std::vector<double>& all = inputs[i]->values;
            const std::int64_t part = std::ssize(all) / form.steps;
            const auto first = all.begin() + form.index_of(step) * part;
            feed[name_of_input(i)] = {first, first + part};
        }
        const ReferenceRun run(body, feed);
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            const std::vector<double>& values = run[body.results()[i].value].values;
            if (i >= form.states) {
                place(i, form.index_of(step), values);
            } else {
                feed[name_of_input(i)] = values;
                place(i, form.keeps_states ? form.state_after(step + 1) : 0, values);
            }
        }
    }
    return outputs;
}

}  // namespace

ReferenceRun::ReferenceRun(const Graph& graph, const ReferenceFeed& feed) : graph_(graph) {
    values_.reserve(graph.size());
    for (NodeId id = 0; id < graph.end(); ++id) {
        const Node& node = graph.node(id);
        std::vector<const ReferenceTensor*> inputs;
        for (const Value& input : node.inputs) inputs.push_back(&(*this)[input]);
        if (is_from_outside(node))
            values_.push_back({fed(node, feed)});
        else if (node.op->name == "scan")
            values_.push_back(evaluate_scan(node, inputs));
        else if (node.op->composite())
            values_.push_back(evaluate_composite(node, inputs));
        else
            values_.push_back(evaluate_primitive(node, inputs));
    }
}

const ReferenceTensor& ReferenceRun::result(std::string_view name) const {
    for (const Result& result : graph_.results())
        if (result.name == name) return (*this)[result.value];
    throw InternalError(fmt::format("the graph has no result '{}'", name));
}

ReferenceFeed ReferenceRun::next(const ReferenceFeed& feed) const {
    ReferenceFeed after = feed;
    for (const Update& update : graph_.updates())
        after[graph_.state(update.state).name] = (*this)[update.value].values;
    return after;
}

double evaluate_on_numbers(const Node& node, std::span<const Type> types, std::span<const double> numbers) {
    std::vector<ReferenceTensor> scalars;
    for (std::size_t i = 0; i < numbers.size(); ++i) scalars.push_back({{types[i].dtype, {}}, {numbers[i]}});
    std::vector<const ReferenceTensor*> operands;
    for (const ReferenceTensor& scalar : scalars) operands.push_back(&scalar);
    Node scalar_node = node;
    for (Type& type : scalar_node.outputs) type.shape = {};
    return evaluate_primitive(scalar_node, operands)[0].values[0];
}

}  // namespace mantissa
