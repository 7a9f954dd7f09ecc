#include "mantissa/passes/round_operands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "mantissa/graph/call.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/passes/operand_blocks.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

/// A layer's forward product: rows times a parameter, or images under one.
struct Layer {
    Value x = {}, w = {};  ///< as it multiplies them
    Shape weight = {};
    std::string kept = {};  ///< why it stays as it is; empty: it is rounded
};

bool is_convolution(const Node& node) { return node.op->name != "matmul"; }

/// The axis of an operand along which a product sums; the channels for a convolution. Each tap of a filter
/// gradient meets other places of the images, so only along the batch do all taps multiply the same
/// neighbours.
int depth_axis(const Graph& graph, const Node& product, int side) {
    if (product.op->name == "conv2d_filter_gradient") return 0;
    if (product.op->name == "conv2d") return side == 0 ? 3 : 2;
    if (product.op->name == "conv2d_input_gradient") return 3;
    // Columns of the first operand and rows of the second, unless transposed.
    const bool transposed = product.attributes.flag(side == 0 ? "transpose_a" : "transpose_b");
    const int last = graph.type(product.inputs[side]).shape.rank() - 1;
    return (side == 0) != transposed ? last : last - 1;
}

class Rounding {
  public:
    Rounding(const Graph& source, const Policy& policy, const Target& target)
        : source_(source), policy_(policy), blocks_(*policy.blocks), target_(target), rewriter_(source) {}

    RoundedOperands run(std::span<Value> kept) {
        find_layers();
        for (NodeId id = 0; id < source_.end(); ++id)
            if (is_from_outside(source_.node(id))) rewriter_.copy(id);
        for (NodeId id = 0; id < source_.end(); ++id)
            if (!is_from_outside(source_.node(id))) visit(id);
        for (Value& value : kept) value = rewriter_.map(value);
        RoundedOperands made{rewriter_.finish(), std::move(kept_)};
        for (const auto& [state, value] : histories_) made.graph.add_update(state, value);
        return made;
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

    /// Whether a node multiplies matrices or images of BF16.
    bool is_product(const Node& node) const {
        return node.op->fuser == FuserClass::contraction && source_.type(node.inputs[0]).dtype == DType::bf16;
    }

    void find_layers() {
        std::vector<NodeId> found;
        bool joint_loss = false;
        for (NodeId id = 0; id < source_.end(); ++id) {
            const Node& node = source_.node(id);
            joint_loss = joint_loss || node.op->name == "linear_cross_entropy";
            if (node.origin.stage == Stage::forward && is_layer(node)) found.push_back(id);
            differentiated_ = differentiated_ || node.origin.stage == Stage::backward;
        }
        for (const NodeId id : found) {
            const Node& node = source_.node(id);
            Layer layer{
                .x = node.inputs[0], .w = node.inputs[1], .weight = source_.type(node.inputs[1]).shape};
            if (is_given(layer.x)) layer.kept = "the first layer, which reads an input, stays in bf16";
            if (!joint_loss && id == found.back()) layer.kept = "the last layer, the head, stays in bf16";
            if (is_convolution(node) && node.attributes.integer("groups") > 1)
                layer.kept = "a convolution in groups stays in bf16: a block would lie in several";
            layers_.push_back(std::move(layer));
        }
        keep_ends();
    }

    /// The first and the last layers, as many as the policy says.
    void keep_ends() {
        const auto count = static_cast<double>(layers_.size());
        const auto keep_some = [&](double share, const char* which, auto begin, auto end) {
            auto left = std::llround(share * count);
            const std::string why =
                fmt::format("the {} {:.1f} % of all layers stay in bf16", which, 100 * share);
            for (auto layer = begin; layer != end && left > 0; ++layer, --left)
                if (layer->kept.empty()) layer->kept = why;
        };
        keep_some(blocks_.kept_first, "first", layers_.begin(), layers_.end());
        keep_some(blocks_.kept_last, "last", layers_.rbegin(), layers_.rend());
    }

    bool is_layer(const Node& node) const {
        return is_product(node) && is_parameter(node.inputs[1]) && !is_parameter(node.inputs[0]) &&
               (is_convolution(node) || source_.type(node.inputs[1]).shape.rank() == 2);
    }

    /// The layer that a node is one of the three products of; null: none. A product of the backward pass has
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
        if (!is_product(node)) return rewriter_.copy(id);
        const Layer* const layer = layer_of(node);
        if (!layer || !layer->kept.empty()) {
            keep(node, layer ? layer->kept : "no operand is a parameter, as in attention: it stays in bf16");
            return rewriter_.copy(id);
        }
        round(id, *layer);
    }

    /// How an operand is rounded. One rounding serves all readers.
    struct Wish {
        Value operand;
        int axis = 0;
        bool is_gradient = false, turned = false, fp8 = false;

        friend auto operator<=>(const Wish&, const Wish&) = default;
    };
    /// The values, and with a scale of the tensor its factor.
    struct Rounded {
        Value value, factor;
    };

    void round(NodeId id, const Layer& layer) {
        const Node& node = source_.node(id);
        const bool is_forward = node.origin.stage == Stage::forward;
        const bool fp8 = multiplies_fp8(node);
        const bool of_filter = !is_forward && node.inputs[0] != layer.w && node.inputs[1] != layer.w;
        Origin origin = node.origin;
        origin.rule = fmt::format("{} list: a {}'s product", policy_.name,
                                  is_convolution(node) ? "convolution" : "linear layer");
        std::array<Rounded, 2> factors;
        for (const int side : {0, 1}) {
            const Value operand = node.inputs[side];
            Wish wish{.operand = operand,
                      .axis = depth_axis(source_, node, side),
                      .is_gradient = !is_forward && operand != layer.w && operand != layer.x,
                      .turned = of_filter && blocks_.hadamard,
                      .fp8 = fp8};
            const bool is_whole = blocks_.rule == ScaleRule::tensor || is_square(operand);
            if (is_whole) wish.axis = 0;  // the same along either
            factors[side] = rounded(wish, layer, origin);
        }
        const OriginScope scope(rewriter_.target(), std::move(origin));
        std::vector<Value> operands = rewriter_.map(node.inputs);
        for (const int side : {0, 1}) operands[side] = factors[side].value;
        if (fp8) {
            operands.insert(operands.begin() + 2, {factors[0].factor, factors[1].factor});
            const Attributes& as = node.attributes;
            return rewriter_.place({id, 0},
                                   {rewriter_.target().add("scaled_matmul", std::move(operands), as), 0});
        }
        rewriter_.place({id, 0}, has_tensor_scale(blocks_.rule) ? scaled_product(node, operands, factors)
                                                                : product(node, operands, node.attributes));
    }

    /// Whether the target's unit multiplies the operands as FP8; where only the shape is in the way, that is
    /// said.
    bool multiplies_fp8(const Node& node) {
        const bool is_fp8 =
            blocks_.element == ShortFormat::e4m3 &&
            (blocks_.gradient_element == ShortFormat::e4m3 || blocks_.gradient_element == ShortFormat::e5m2);
        if (target_.fp8_unit.empty() || blocks_.rule != ScaleRule::tensor || is_convolution(node) || !is_fp8)
            return false;
        std::set<std::int64_t> odd;  // one choice for a layer's three products
        for (const int side : {0, 1})
            for (const std::int64_t extent : source_.type(node.inputs[side]).shape.extents())
                if (extent % fp8_extent_multiple != 0) odd.insert(extent);
        if (odd.empty()) return true;
        keep(node, fmt::format("its products are in bf16: FP8 takes extents that are multiples of {}, got {}",
                               fp8_extent_multiple, fmt::join(odd, ", ")));
        return false;
    }

    Value product(const Node& node, std::vector<Value> operands, const Attributes& attributes) {
        return {rewriter_.target().add(node.op->name, std::move(operands), attributes), 0};
    }

    /// The sums times both tensors' factors, then the bias, in FP32.
    Value scaled_product(const Node& node, const std::vector<Value>& operands,
                         const std::array<Rounded, 2>& factors) {
        Graph& graph = rewriter_.target();
        const Value sums =
            product(node, {operands[0], operands[1]}, node.attributes.with("output", DType::f32));
        const Tensor factor =
            call1("mul", {Tensor(graph, factors[0].factor), Tensor(graph, factors[1].factor)});
        Tensor y = call1("mul", {Tensor(graph, sums), factor});
        if (operands.size() == 3) y = call1("add", {y, cast(Tensor(graph, operands[2]), DType::f32)});
        return cast(y, node.outputs[0].dtype).value();
    }

    bool is_square(Value operand) const { return blocks_.square_weights && is_parameter(operand); }

    /// The history of a tensor; if several layers read the tensor, the first one's.
    Tensor history_of(const Wish& wish, const Layer& layer) {
        const int weight = source_.state_of(uncast(layer.w).node);
        std::string name =
            fmt::format("{}{}.{}", history_prefix, wish.is_gradient ? "dy" : "x", source_.state(weight).name);
        Graph& graph = rewriter_.target();
        while (graph.find_state(name) >= 0) name += "+";  // a weight that is read again
        return {graph, graph.add_state({.kind = State::Kind::optimizer,
                                        .name = name,
                                        .type = {DType::f32, {1, blocks_.history}},
                                        .initializer = {}})};
    }

    /// The largest magnitude: each row's first, as a kernel of rows finds it.
    Value largest_of(Value operand) {
        const auto [entry, is_new] = largest_.try_emplace(operand);
        if (!is_new) return entry->second;
        const Tensor x(rewriter_.target(), rewriter_.map(operand));
        const Tensor rows = max(abs(cast(x, DType::f32)), {x.shape().rank() - 1}, KeepAxes::no, Where{});
        return entry->second = max(rows, Where{}).value();
    }

    Rounded rounded(const Wish& wish, const Layer& layer, const Origin& reader) {
        const auto [entry, is_new] = rounded_.try_emplace(wish);
        if (!is_new) return entry->second;
        const ShortFormat element = wish.is_gradient ? blocks_.gradient_element : blocks_.element;
        Origin origin = reader;
        origin.rule = fmt::format("{}: {}", policy_.name, text_of(wish, element));
        Graph& graph = rewriter_.target();
        const OriginScope scope(graph, std::move(origin));
        const Value from = is_parameter(wish.operand) ? uncast(wish.operand) : wish.operand;
        Attributes attributes{{"element", std::string(limits_of(element).name)},
                              {"rule", std::string(name_of(blocks_.rule))},
                              {"axis", std::int64_t{wish.axis}},
                              {"block", blocks_.size}};
        std::vector<Value> operands{rewriter_.map(from)};
        if (is_square(wish.operand)) attributes = attributes.with("square", true);
        if (wish.fp8) attributes = attributes.with("fp8", true);
        if (wish.turned) attributes = attributes.with("hadamard", true);
        const bool delayed = blocks_.history > 0 && !is_parameter(wish.operand);
        Tensor history;
        if (delayed) {
            history = history_of(wish, layer);
            attributes = attributes.with("given", true);
            operands.push_back(max(history, {0, 1}, KeepAxes::no, Where{}).value());
        }
        // A transform comes before: there the kernel finds the largest of its results.
        if (target_.finds_largest_where_written && has_tensor_scale(blocks_.rule) && !wish.turned &&
            !is_parameter(wish.operand)) {
            attributes = attributes.with("measured", true);
            operands.push_back(largest_of(wish.operand));
        }
        if (wish.is_gradient && blocks_.stochastic_gradients) {
            attributes = attributes.with("random", next_random_++);
            for (const char* input : {"random_seed", "random_step"}) operands.push_back(number_of_run(input));
        }
        const NodeId made = graph.add("round_blocks", std::move(operands), attributes);
        if (delayed && differentiated_) {
            const Tensor largest = reshape(Tensor(graph, {made, 2}), {1});
            histories_[graph.state_of(history.value().node)] =
                call1("running_history", {history, largest}).value();
        }
        entry->second.value = {made, 0};
        if (has_tensor_scale(blocks_.rule)) entry->second.factor = {made, 1};
        return entry->second;
    }

    std::string text_of(const Wish& wish, ShortFormat element) const {
        const std::string_view name = limits_of(element).name;
        if (blocks_.rule == ScaleRule::tensor)
            return fmt::format(
                "{}, one scale for the tensor{}", name,
                blocks_.history > 0 && !is_parameter(wish.operand) ? " from earlier steps" : "");
        std::string text = is_square(wish.operand)
                               ? fmt::format("{0} in blocks of {1} x {1}", name, blocks_.size)
                               : fmt::format("{} in blocks of {} along the depth", name, blocks_.size);
        text += blocks_.rule == ScaleRule::two_level ? ", scale e4m3, and one for the tensor"
                : blocks_.rule == ScaleRule::up      ? ", scale a power of two, rounded up"
                                                     : ", scale a power of two, rounded down";
        if (wish.turned) text += ", after a Hadamard transform";
        if (wish.is_gradient && blocks_.stochastic_gradients) text += ", at random";
        return text;
    }

    /// An input that the trainer gives, as dropout reads it.
    Value number_of_run(const char* name) {
        Graph& graph = rewriter_.target();
        for (const NodeId input : graph.inputs())
            if (graph.node(input).attributes.word("name") == name) return {input, 0};
        return graph.add_input(name, {DType::i64, {}});
    }

    /// Notes a product that stays, once for each place and reason.
    void keep(const Node& node, const std::string& why) {
        if (!said_.emplace(node.origin.scope, why).second) return;
        kept_.push_back(
            {"round_operands", std::string(node.op->name), node.origin.scope, why, node.origin.line.text()});
    }

    const Graph& source_;
    const Policy& policy_;
    const OperandBlocks blocks_;
    const Target& target_;
    Rewriter rewriter_;
    std::vector<Layer> layers_;
    std::map<Wish, Rounded> rounded_;
    std::map<Value, Value> largest_;  ///< magnitudes, of values of the source
    std::map<int, Value> histories_;  ///< by state: its new value
    bool differentiated_ = false;
    /// Tells roundings from each other, and from random numbers of a model, which count from 0.
    std::int64_t next_random_ = std::int64_t{1} << 20;
    std::set<std::pair<std::string, std::string>> said_;
    std::vector<PassRefusal> kept_;
};

}  // namespace

RoundedOperands round_operands(const Graph& graph, const Policy& policy, std::span<Value> kept,
                               const Target& target) {
    return Rounding(graph, policy, target).run(kept);
}

}  // namespace mantissa
