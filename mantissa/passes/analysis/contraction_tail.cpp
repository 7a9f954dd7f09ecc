#include "mantissa/passes/analysis/contraction_tail.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

namespace {

/// Copies a body into the graph of its tail.
class TailMaker {
  public:
    TailMaker(const Graph& body, NodeId contraction) : body_(body) { tail_.contraction = contraction; }

    ContractionTail run() {
        const Node& contraction = body_.node(tail_.contraction);
        const Value sums = tail_.graph.add_input("sums", {DType::f32, contraction.outputs[0].shape});
        for (NodeId id = 0; id < body_.end(); ++id) {
            const NodeId now = id;
            if (now == tail_.contraction)
                placed_[{now, 0}] = finished(contraction, {tail_.graph, sums});
            else if (body_.node(now).op->name != "input")
                copy(now);
        }
        for (const Result& result : body_.results())
            tail_.graph.add_result(result.name, placed_.at(result.value));
        return std::move(tail_);
    }

  private:
    /// The sums with the bias, in the contraction's own type.
    Value finished(const Node& contraction, Tensor sums) {
        if (contraction.inputs.size() == 3)
            sums = sums + cast(Tensor(tail_.graph, map(contraction.inputs[2])), DType::f32);
        const DType dtype = contraction.outputs[0].dtype;
        if (dtype != DType::f32) return cast(sums, dtype).value();
        // A node, since a nest's results are nodes.
        return {tail_.graph.add("broadcast", {sums.value()}, {{"shape", sums.shape().extents()}}), 0};
    }

    void copy(NodeId id) {
        const Node& node = body_.node(id);
        std::vector<Value> inputs;
        for (const Value& input : node.inputs) inputs.push_back(map(input));
        placed_[{id, 0}] = {tail_.graph.add(node.op->name, std::move(inputs), node.attributes), 0};
    }

    Value map(Value value) {
        if (const auto known = placed_.find(value); known != placed_.end()) return known->second;
        for (std::size_t i = 0; i < body_.inputs().size(); ++i)
            if (body_.inputs()[i] == value.node) tail_.operands.push_back(static_cast<int>(i));
        return placed_[value] =
                   tail_.graph.add_input(fmt::format("in{}", tail_.operands.size()), body_.type(value));
    }

    const Graph& body_;
    ContractionTail tail_;
    std::map<Value, Value> placed_;
};

std::string refuse_tail(const Graph& tail, const Nest& nest) {
    const Shape& sums = tail.node(tail.inputs()[0]).outputs[0].shape;
    if (nest.columns != sums[-1] || nest.rows * nest.columns != sums.elements())
        return fmt::format("the tail goes over {} x {}, the sums are {}", nest.rows, nest.columns,
                           sums.text());
    if (nest.rows == 1 || nest.columns == 1) return "one row or column of sums is no block";
    for (NodeId id : nest.nodes) {
        const Reduces what = reduces(tail, tail.node(id));
        if (what == Reduces::row || what == Reduces::everything)
            return fmt::format("{} needs whole rows, a block of sums has parts of them",
                               tail.node(id).op->name);
    }
    for (const Result& result : tail.results()) {
        const bool summed = reduces(tail, tail.node(result.value.node)) == Reduces::columns;
        if (!summed && nest.values.at(result.value) != Varies::by_both)
            return "an output does not vary by row and column";
    }
    return "";
}

}  // namespace

NodeId contraction_of(const Graph& body) {
    for (NodeId id = 0; id < body.end(); ++id)
        if (body.node(id).op->fuser == FuserClass::contraction) return id;
    return -1;
}

std::optional<ContractionTail> contraction_tail(const Graph& body) {
    const NodeId contraction = contraction_of(body);
    if (contraction < 0) return std::nullopt;
    return TailMaker(body, contraction).run();
}

OrReason<Nest> nest_of_tail(const Graph& tail) {
    std::vector<NodeId> nodes;
    for (NodeId id = 0; id < tail.end(); ++id)
        if (tail.node(id).op->name != "input") nodes.push_back(id);
    OrReason<Nest> nest = make_nest(
        tail, nodes, [](Value) { return false; }, Loops::rows_and_columns);
    if (!nest) return nest;
    if (std::string reason = refuse_tail(tail, *nest); !reason.empty()) return NoValue{std::move(reason)};
    return nest;
}

}  // namespace mantissa
