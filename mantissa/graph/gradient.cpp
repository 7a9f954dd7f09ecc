#include "mantissa/graph/gradient.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/graph/inline_body.h"

namespace mantissa::inline v0 {

namespace {

std::vector<Tensor> input_tensors(Graph& graph, const Node& node) {
    std::vector<Tensor> tensors;
    for (const Value& input : node.inputs) tensors.emplace_back(graph, input);
    return tensors;
}

std::vector<Tensor> output_tensors(Graph& graph, NodeId id) {
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < graph.node(id).outputs.size(); ++i)
        tensors.emplace_back(graph, Value{id, static_cast<std::int32_t>(i)});
    return tensors;
}

class Backpropagation {
  public:
    Backpropagation(Graph& graph, std::span<const Tensor> wrt) : graph_(graph) {
        depends_.resize(graph.size());
        std::set<Value> roots;
        for (const Tensor& x : wrt) {
            roots.insert(x.value());
            depends_[x.value().node] = true;
        }
        for (NodeId id = 0; id < graph.end(); ++id)
            for (const Value& input : graph.node(id).inputs)
                if (depends_[input.node]) depends_[id] = true;
    }

    void add(Value value, Tensor cotangent) {
        const Type& type = graph_.type(value);
        check(cotangent.shape() == type.shape, "a gradient has the shape of what it is the gradient of");
        check(cotangent.dtype() == type.dtype || is_cast_of_state(value),
              "a gradient has the type of what it is the gradient of");
        const auto [entry, is_first] = cotangents_.try_emplace(value, cotangent);
        if (is_first) return;
        Tensor& sum = entry->second;
        const DType wider =
            size_of(sum.dtype()) < size_of(cotangent.dtype()) ? cotangent.dtype() : sum.dtype();
        sum = cast(sum, wider) + cast(cotangent, wider);
    }

    void run() {
        for (NodeId id = static_cast<NodeId>(depends_.size()) - 1; id >= 0; --id)
            if (depends_[id]) visit(id);
    }

    Tensor gradient_of(Value value) const {
        const auto entry = cotangents_.find(value);
        return entry == cotangents_.end() ? Tensor{} : entry->second;
    }

  private:
    /// A parameter that a policy had cast: contractions write its gradient in the parameter's own type.
    bool is_cast_of_state(Value value) const {
        const Node& node = graph_.node(value.node);
        return node.op->name == "cast" && graph_.state_of(node.inputs[0].node) >= 0;
    }

    void visit(NodeId id) {
        const Node& node = graph_.node(id);
        const std::vector<Tensor> outputs = output_tensors(graph_, id);
        std::vector<Tensor> cotangents;
        bool any = false;
        for (const Tensor& output : outputs) {
            cotangents.push_back(gradient_of(output.value()));
            any = any || cotangents.back();
        }
        if (!any || !node.op->gradient) return;
        Origin origin = node.origin;
        origin.stage = Stage::backward;
        const OriginScope scope(graph_, std::move(origin));
        const std::vector<Tensor> inputs = input_tensors(graph_, node);
        std::vector<bool> wanted;
        for (const Tensor& input : inputs) wanted.push_back(depends_[input.value().node]);
        const std::vector<Tensor> gradients =
            node.op->gradient({graph_, inputs, outputs, cotangents, node.attributes, wanted});
        check(gradients.size() == inputs.size(), "a gradient rule gives one gradient per operand");
        for (std::size_t i = 0; i < inputs.size(); ++i)
            if (gradients[i] && wanted[i]) add(inputs[i].value(), gradients[i]);
    }

    Graph& graph_;
    std::vector<bool> depends_;  // by node: whether it depends on one of `wrt`
    std::map<Value, Tensor> cotangents_;
};

}  // namespace

std::vector<Tensor> backpropagate(Graph& graph, std::span<const Tensor> outputs,
                                  std::span<const Tensor> cotangents, std::span<const Tensor> wrt) {
    check(outputs.size() == cotangents.size(), "one cotangent per output");
    Backpropagation backpropagation(graph, wrt);
    for (std::size_t i = 0; i < outputs.size(); ++i)
        if (cotangents[i]) backpropagation.add(outputs[i].value(), cotangents[i]);
    backpropagation.run();
    std::vector<Tensor> gradients;
    for (const Tensor& x : wrt) gradients.push_back(backpropagation.gradient_of(x.value()));
    return gradients;
}

std::vector<Tensor> differentiate_definition(const DefinitionGradient& gradient, Graph& graph,
                                             const Attributes& attributes) {
    // In a graph of its own, with every operand an input: two operands may be one value, and one may depend
    // on another along an earlier path, which is not this operation's.
    Graph alone;
    alone.origin = graph.origin;
    std::vector<Tensor> given;  // in `graph`, by input of `alone`
    const auto leaf_of = [&](const Tensor& x) {
        if (!x) return Tensor{};
        given.push_back(x);
        return Tensor(alone, alone.add_input(fmt::format("x{}", given.size()), x.type()));
    };
    std::vector<Tensor> leaves, cotangents, saved;
    for (const Tensor& input : gradient.inputs) leaves.push_back(leaf_of(input));
    for (const Tensor& cotangent : gradient.cotangents) cotangents.push_back(leaf_of(cotangent));
    for (const auto& [index, value] : gradient.saved) saved.push_back(leaf_of(value));
    const std::vector<Tensor> outputs = find_op(gradient.op).definition({alone, leaves, attributes});
    std::vector<Tensor> gradients = backpropagate(alone, outputs, cotangents, leaves);
    // Saved values replace the same values of the definition, both in the gradient and in the parts of the
    // definition that the gradient needs.
    for (std::size_t i = 0; i < saved.size(); ++i)
        alone.replace_uses(outputs[gradient.saved[i].first].value(), saved[i].value(), 0);
    for (const Tensor& of_leaf : gradients)
        if (of_leaf) alone.add_result("", of_leaf.value());
    const std::vector<Tensor> found = inline_body(graph, alone, given, Origins::of_body);
    for (auto next = found.begin(); Tensor & of_leaf : gradients)
        if (of_leaf) of_leaf = *next++;
    return gradients;
}

}  // namespace mantissa
