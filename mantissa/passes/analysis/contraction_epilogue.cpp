#include "mantissa/passes/analysis/contraction_epilogue.h"

#include <fmt/format.h>

#include <map>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

namespace {

/// Copies a body into the graph of its epilogue.
class EpilogueMaker {
  public:
    EpilogueMaker(const Graph& body, NodeId contraction) : body_(body) {
        epilogue_.contraction = contraction;
    }

    ContractionEpilogue run() {
        const Node& contraction = body_.node(epilogue_.contraction);
        const Value sums = epilogue_.graph.add_input("sums", {DType::f32, contraction.outputs[0].shape});
        for (NodeId id = 0; id < body_.end(); ++id) {
            const NodeId now = id;
            if (now == epilogue_.contraction)
                placed_[{now, 0}] = finished(contraction, {epilogue_.graph, sums});
            else if (body_.node(now).op->name != "input")
                copy(now);
        }
        for (const Result& result : body_.results())
            epilogue_.graph.add_result(result.name, placed_.at(result.value));
        return std::move(epilogue_);
    }

  private:
    /// The sums with the bias, in the contraction's own type.
    Value finished(const Node& contraction, Tensor sums) {
        if (contraction.inputs.size() == 3)
            sums = sums + cast(Tensor(epilogue_.graph, map(contraction.inputs[2])), DType::f32);
        const DType dtype = contraction.outputs[0].dtype;
        if (dtype != DType::f32) return cast(sums, dtype).value();
        // A node, since a nest's results are nodes.
        return {epilogue_.graph.add("broadcast", {sums.value()}, {{"shape", sums.shape().extents()}}), 0};
    }

    void copy(NodeId id) {
        const Node& node = body_.node(id);
        std::vector<Value> inputs;
        for (const Value& input : node.inputs) inputs.push_back(map(input));
        placed_[{id, 0}] = {epilogue_.graph.add(node.op->name, std::move(inputs), node.attributes), 0};
    }

    Value map(Value value) {
        if (const auto known = placed_.find(value); known != placed_.end()) return known->second;
        for (std::size_t i = 0; i < body_.inputs().size(); ++i)
            if (body_.inputs()[i] == value.node) epilogue_.operands.push_back(static_cast<int>(i));
        return placed_[value] = epilogue_.graph.add_input(fmt::format("in{}", epilogue_.operands.size()),
                                                          body_.type(value));
    }

    const Graph& body_;
    ContractionEpilogue epilogue_;
    std::map<Value, Value> placed_;
};

std::string refuse_epilogue(const Graph& epilogue, const Nest& nest) {
    const Shape& sums = epilogue.node(epilogue.inputs()[0]).outputs[0].shape;
    if (nest.columns != sums[-1] || nest.rows * nest.columns != sums.elements())
        return fmt::format("the epilogue goes over {} x {}, the sums are {}", nest.rows, nest.columns,
                           sums.text());
    if (nest.rows == 1 || nest.columns == 1) return "one row or column of sums is no block";
    for (NodeId id : nest.nodes) {
        const Reduces what = reduces(epilogue, epilogue.node(id));
        if (what == Reduces::row || what == Reduces::everything)
            return fmt::format("{} needs whole rows, a block of sums has parts of them",
                               epilogue.node(id).op->name);
    }
    for (const Result& result : epilogue.results()) {
        const bool summed = reduces(epilogue, epilogue.node(result.value.node)) == Reduces::columns;
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

std::optional<ContractionEpilogue> contraction_epilogue(const Graph& body) {
    const NodeId contraction = contraction_of(body);
    if (contraction < 0) return std::nullopt;
    return EpilogueMaker(body, contraction).run();
}

Expected<Nest> nest_of_epilogue(const Graph& epilogue) {
    Expected<Nest> nest = make_nest(epilogue, Loops::rows_and_columns);
    if (!nest) return nest;
    if (std::string reason = refuse_epilogue(epilogue, *nest); !reason.empty())
        return Unexpected{std::move(reason)};
    return nest;
}

}  // namespace mantissa
