#include "mantissa/passes/fuse.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "mantissa/passes/analysis/fuse_groups.h"
#include "mantissa/passes/analysis/nest.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse_epilogues.h"
#include "mantissa/passes/recompute.h"
#include "mantissa/passes/recompute_in_nests.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0 {

namespace {

/// Copies the members of a group into a graph of their own.
class BodyMaker {
  public:
    BodyMaker(const Graph& graph, const Grouping& grouping) : graph_(graph), grouping_(grouping) {}

    Graph run(const Nodes& group, const Border& border) {
        for (std::size_t i = 0; i < border.inputs.size(); ++i)
            placed_[border.inputs[i]] =
                body_.add_input(fmt::format("in{}", i), graph_.type(border.inputs[i]));
        for (NodeId id : group) copy(id);
        for (std::size_t i = 0; i < border.outputs.size(); ++i)
            body_.add_result(fmt::format("out{}", i), placed_.at(border.outputs[i]));
        return simplify(body_);  // groups of two stages may have computed equal values
    }

  private:
    void copy(NodeId id) {
        const Node& node = graph_.node(id);
        const bool reduction = node.op->fuser == FuserClass::row_reduction;
        std::vector<Value> inputs;
        for (const Value& input : node.inputs) {
            const auto placed = placed_.find(input);
            inputs.push_back(placed != placed_.end() ? placed->second
                                                     : made_again(input, reduction ? graph_.type(input).shape
                                                                                   : node.outputs[0].shape));
        }
        const OriginScope scope(body_, origin_in_body(node));
        placed_[{id, 0}] = {body_.add(node.op->name, std::move(inputs), node.attributes), 0};
    }

    /// A value of constants and counters, in the shape of its user: a counter counts along its own axis
    /// whatever the others are.
    Value made_again(Value value, const Shape& shape) {
        const Node& node = graph_.node(value.node);
        const auto key = std::pair(value, shape.extents());
        if (const auto known = again_.find(key); known != again_.end()) return known->second;
        Value made;
        if (node.op->name == "constant") {
            made = {body_.add("constant", {}, node.attributes), 0};
        } else if (node.op->name == "iota") {
            const auto axis = static_cast<int>(node.attributes.integer("axis"));
            const Shape& own = node.outputs[0].shape;
            // Along an axis of extent 1 it is 0, but its user may take its shape from it alone.
            made = own[axis] == 1
                       ? constant(body_, 0, node.outputs[0].dtype, shape).value()
                       : iota(body_, shape, axis + shape.rank() - own.rank(), node.outputs[0].dtype).value();
        } else {
            std::vector<Value> inputs;
            for (const Value& input : node.inputs) inputs.push_back(made_again(input, shape));
            made = {body_.add(node.op->name, std::move(inputs), node.attributes), 0};
        }
        return again_[key] = made;
    }

    const Graph& graph_;
    const Grouping& grouping_;
    Graph body_;
    std::map<Value, Value> placed_;
    std::map<std::pair<Value, std::vector<std::int64_t>>, Value> again_;
};

/// Puts fused nodes where their groups stood. A group is placed when something needs it, at the latest where
/// its last member was.
class Placing {
  public:
    Placing(const Graph& graph, const Grouping& grouping, Fusion& fusion)
        : graph_(graph), grouping_(grouping), fusion_(fusion), rewriter_(graph) {}

    Graph run() {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const int group = grouping_.group_of(id);
            if (group < 0 ? !made_inside(id) : members(group).back() == id) place(id);
        }
        for (const Result& result : graph_.results()) place(result.value.node);
        for (const Update& update : graph_.updates()) place(update.value.node);
        return rewriter_.finish();
    }

  private:
    const Nodes& members(int group) const { return grouping_.groups()[group]; }

    /// A counter, or a node computed from counters: where a nest alone reads it, it need not be there.
    bool made_inside(NodeId id) const {
        return graph_.node(id).op->name != "constant" && grouping_.from_source({id, 0});
    }

    void place(NodeId id) {
        if (const int group = grouping_.group_of(id); group >= 0) {
            if (placed_.insert(group).second) place_group(members(group));
        } else if (!rewriter_.placed({id, 0})) {
            for (const Value& input : graph_.node(id).inputs) place(input.node);
            rewriter_.copy(id);
        }
    }

    void place_group(const Nodes& group) {
        const Border border = grouping_.border(group);
        for (const Value& input : border.inputs) place(input.node);
        Graph body = BodyMaker(graph_, grouping_).run(group, border);
        const OriginScope scope(rewriter_.target(), graph_.node(border.outputs.front().node).origin);
        const NodeId fused =
            rewriter_.target().add("fused", rewriter_.map(border.inputs), {{"body", Body(std::move(body))}});
        for (std::size_t i = 0; i < border.outputs.size(); ++i)
            rewriter_.place(border.outputs[i], {fused, static_cast<std::int32_t>(i)});
        for (NodeId id : border.reshapes) place_reshape(id);
        ++fusion_.kernels;
        fusion_.bytes_saved += grouping_.bytes_saved(group, border);
    }

    void place_reshape(NodeId id) {
        if (rewriter_.placed({id, 0})) return;
        const Value operand = graph_.node(id).inputs[0];
        if (!rewriter_.placed(operand)) place_reshape(operand.node);
        rewriter_.copy(id);
    }

    const Graph& graph_;
    const Grouping& grouping_;
    Fusion& fusion_;
    Rewriter rewriter_;
    std::set<int> placed_;  // groups
};

}  // namespace

Fusion fuse(const Graph& graph, const Machine& machine) {
    const FusionCosts& costs = machine.target.fusion;
    std::vector<PassRefusal> refused;
    const Grouping before(graph, costs, refused);
    const NestRecomputation again = recompute_in_nests(graph, before, costs.instructions_per_byte);
    Fusion fusion;
    fusion.recomputed = again.values;
    if (again.values == 0) {
        fusion.refused = std::move(refused);
        fusion.graph = Placing(graph, before, fusion).run();
    } else {
        const Grouping grouping(again.graph, costs, fusion.refused);
        fusion.graph = Placing(again.graph, grouping, fusion).run();
    }
    Fusion epilogues = fuse_epilogues(fusion.graph, machine);
    fusion.graph = std::move(epilogues.graph);
    fusion.bytes_saved += epilogues.bytes_saved;
    for (PassRefusal& refusal : epilogues.refused) fusion.refused.push_back(std::move(refusal));
    return fusion;
}

Origin origin_in_body(const Node& node) {
    Origin origin;
    if (!is_recomputed(node)) origin.rule = node.origin.rule;
    return origin;
}

bool nest_can_hold(const Graph& graph, const Node& composite) {
    if (composite.op->fuser != FuserClass::elementwise && composite.op->fuser != FuserClass::row_reduction)
        return false;
    Graph definition;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < composite.inputs.size(); ++i)
        inputs.emplace_back(definition,
                            definition.add_input(fmt::format("in{}", i), graph.type(composite.inputs[i])));
    composite.op->definition({definition, inputs, composite.attributes});
    const Graph expanded = expand(definition, [](const Graph&, const Node&) { return true; });
    for (NodeId id = 0; id < expanded.end(); ++id) {
        const Node& node = expanded.node(id);
        if (node.op->name != "input" && node.op->name != "stop_gradient" &&
            !refuse_in_nest(expanded, node).empty())
            return false;
    }
    return true;
}

}  // namespace mantissa
