#include "mantissa/passes/round_operands.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "mantissa/numerics/short_formats.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// A layer's forward product, rows times a parameter.
struct Layer {
    Value x, w;  ///< as it multiplies them
    Shape weight = {};
    std::string kept = {};  ///< why it stays as it is; empty: it is rounded
};

class Rounding {
  public:
    Rounding(const Graph& source, const Policy& policy)
        : source_(source), policy_(policy), blocks_(*policy.blocks), rewriter_(source) {}

    RoundedOperands run() {
        find_layers();
        for (NodeId id = 0; id < source_.end(); ++id) visit(id);
        return {rewriter_.finish(), std::move(kept_)};
    }

  private:
    /// The value under casts.
    Value uncast(Value value) const {
        while (source_.node(value.node).op->name == "cast") value = source_.node(value.node).inputs[0];
        return value;
    }

    bool is_parameter(Value value) const {
        const int state = source_.state_of(uncast(value).node);
        return state >= 0 && source_.state(state).kind == State::Kind::parameter;
    }

    /// Whether nothing but casts and movement lies between a value and an input of the run.
    bool is_given(Value value) const {
        const Node& node = source_.node(value.node);
        if (node.op->name == "input") return true;
        const bool moves = node.op->name == "cast" || node.op->fuser == FuserClass::movement;
        return moves && !node.inputs.empty() && is_given(node.inputs[0]);
    }

    bool multiplies_bf16(const Node& node) const {
        return !node.inputs.empty() && node.op->autocast == AutocastClass::lower &&
               source_.type(node.inputs[0]).dtype == DType::bf16;
    }

    void find_layers() {
        std::vector<NodeId> linear;
        bool joint_loss = false;
        for (NodeId id = 0; id < source_.end(); ++id) {
            const Node& node = source_.node(id);
            joint_loss = joint_loss || node.op->name == "linear_cross_entropy";
            if (node.origin.stage == Stage::forward && is_linear(node)) linear.push_back(id);
        }
        for (const NodeId id : linear) {
            const Node& node = source_.node(id);
            Layer layer{
                .x = node.inputs[0], .w = node.inputs[1], .weight = source_.type(node.inputs[1]).shape};
            if (is_given(layer.x)) layer.kept = "the first layer, which reads an input, stays in bf16";
            if (!joint_loss && id == linear.back()) layer.kept = "the last layer, the head, stays in bf16";
            layers_.push_back(std::move(layer));
        }
    }

    bool is_linear(const Node& node) const {
        return node.op->name == "matmul" && multiplies_bf16(node) && is_parameter(node.inputs[1]) &&
               !is_parameter(node.inputs[0]) && source_.type(node.inputs[1]).shape.rank() == 2;
    }

    /// The layer of which a node is one of the three products; null: none. A product of the backward pass has
    /// an operand of the forward one beside a gradient.
    const Layer* layer_of(const Node& node) const {
        const auto reads = [&](Value value) { return node.inputs[0] == value || node.inputs[1] == value; };
        for (const Layer& layer : layers_) {
            if (node.origin.stage == Stage::forward) {
                if (node.inputs[0] == layer.x && node.inputs[1] == layer.w) return &layer;
                continue;
            }
            if (reads(layer.w)) return &layer;
            if (reads(layer.x) && node.outputs[0].shape == layer.weight) return &layer;
        }
        return nullptr;
    }

    void visit(NodeId id) {
        const Node& node = source_.node(id);
        if (node.op->name == "linear_cross_entropy")
            keep(node, "the head, joined with the loss, stays in bf16");
        if (node.op->name == "attention") keep(node, "the products of attention stay in bf16");
        if (node.op->name == "scan")
            keep(node, "what stands in a loop's body is not looked into: it stays in bf16");
        if (node.op->name != "matmul" || !multiplies_bf16(node)) {
            if (node.op->fuser == FuserClass::contraction && multiplies_bf16(node))
                keep(node, "blocks along a convolution's depth are not built: it stays in bf16");
            return rewriter_.copy(id);
        }
        const Layer* const layer = layer_of(node);
        if (!layer || !layer->kept.empty()) {
            keep(node, layer ? layer->kept : "no operand is a parameter, as in attention: it stays in bf16");
            return rewriter_.copy(id);
        }
        round(id);
    }

    void round(NodeId id) {
        const Node& node = source_.node(id);
        std::vector<Value> operands = rewriter_.map(node.inputs);
        Origin origin = node.origin;
        origin.rule = fmt::format("{} list: a linear layer's product", policy_.name);
        for (const int side : {0, 1}) {
            // The depth: of the first operand its columns, unless it is transposed; of the second its rows.
            const bool transposed = node.attributes.flag(side == 0 ? "transpose_a" : "transpose_b");
            const int last = source_.type(node.inputs[side]).shape.rank() - 1;
            operands[side] = rounded(node.inputs[side], (side == 0) != transposed ? last : last - 1, origin);
        }
        const OriginScope scope(rewriter_.target(), std::move(origin));
        const NodeId added = rewriter_.target().add("matmul", std::move(operands), node.attributes);
        rewriter_.place({id, 0}, {added, 0});
    }

    /// A rounding made once serves all who want it.
    Value rounded(Value operand, int axis, const Origin& reader) {
        const auto [entry, is_new] = rounded_.try_emplace({operand, axis});
        if (!is_new) return entry->second;
        Origin origin = reader;
        origin.rule = fmt::format("{}: {} in blocks of {} along the depth, scale a power of two, {}",
                                  policy_.name, limits_of(blocks_.element).name, blocks_.size,
                                  blocks_.rule == ScaleRule::up ? "rounded up" : "rounded down");
        const OriginScope scope(rewriter_.target(), std::move(origin));
        const Value from = is_parameter(operand) ? uncast(operand) : operand;
        entry->second = {rewriter_.target().add("round_blocks", {rewriter_.map(from)},
                                                {{"element", std::string(limits_of(blocks_.element).name)},
                                                 {"rule", std::string(name_of(blocks_.rule))},
                                                 {"axis", std::int64_t{axis}},
                                                 {"block", blocks_.size}}),
                         0};
        return entry->second;
    }

    /// Said once for each place and reason.
    void keep(const Node& node, const std::string& why) {
        if (!said_.emplace(node.origin.scope, why).second) return;
        kept_.push_back(
            {"round_operands", std::string(node.op->name), node.origin.scope, why, node.origin.line.text()});
    }

    const Graph& source_;
    const Policy& policy_;
    const OperandBlocks blocks_;
    Rewriter rewriter_;
    std::vector<Layer> layers_;
    std::map<std::pair<Value, int>, Value> rounded_;
    std::set<std::pair<std::string, std::string>> said_;
    std::vector<PassRefusal> kept_;
};

}  // namespace

RoundedOperands round_operands(const Graph& graph, const Policy& policy) {
    return Rounding(graph, policy).run();
}

}  // namespace mantissa
