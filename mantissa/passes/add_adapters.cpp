#include "mantissa/passes/add_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::string_view weight_suffix = ".weight";

bool is_convolution(const Node& node) { return node.op->name == "conv2d"; }

/// Whether an adapter can stand beside such a node, if its weight is a parameter of so many axes.
bool is_adaptable(const Node& node, int axes) {
    if (is_convolution(node)) return axes == 4 && node.attributes.integer("groups") == 1;
    return node.op->name == "matmul" && axes == 2 && node.attributes.flag("transpose_b") &&
           !node.attributes.flag("transpose_a");
}

/// The state that a layer multiplies by; -1: the node is no layer that can have an adapter.
int weight_of_layer(const Graph& graph, const Node& node) {
    if (node.inputs.size() < 2) return -1;
    const int state = graph.state_of(node.inputs[1].node);
    if (state < 0 || !is_adaptable(node, graph.state(state).type.shape.rank())) return -1;
    const State& weight = graph.state(state);
    return weight.kind == State::Kind::parameter && weight.name.ends_with(weight_suffix) &&
                   weight.adapts.empty()
               ? state
               : -1;
}

/// Tables, which a tied last layer reads, too.
std::set<int> tables(const Graph& graph) {
    std::set<int> all;
    for (NodeId id = 0; id < graph.end(); ++id)
        if (graph.node(id).op->name == "embedding") all.insert(graph.state_of(graph.node(id).inputs[0].node));
    return all;
}

class AddAdapters {
  public:
    AddAdapters(const Graph& source, const AdapterRules& rules)
        : source_(source),
          rules_(rules),
          uses_(source),
          rewriter_(source, Rewriter::Types::may_change),
          tables_(tables(source)),
          last_(adaptable_layers(source).last) {}

    Graph run(std::span<Value> kept) {
        for (NodeId id = 0; id < source_.end(); ++id)
            if (is_from_outside(source_.node(id))) copy_source(id);
        for (NodeId id = 0; id < source_.end(); ++id)
            if (const std::optional<Adapter> adapter = adapter_of(id)) add_states(id, *adapter);
        for (NodeId id = 0; id < source_.end(); ++id)
            if (!is_from_outside(source_.node(id))) visit(id);
        for (Value& value : kept) value = rewriter_.map(value);
        return rewriter_.finish();
    }

  private:
    struct States {
        Value a, b;             // f32 [r, inputs], f32 [outputs, r]; of filters [R, S, C, r], [1, 1, r, K]
        Value magnitude, norm;  // f32 [outputs], [1, 1, 1, K]: m and |W|
    };

    Graph& target() { return rewriter_.target(); }

    std::optional<Adapter> adapter_of(NodeId id) const {
        const int weight = weight_of_layer(source_, source_.node(id));
        if (weight < 0 || tables_.contains(weight)) return {};
        return rules_.of(layer_of_weight(source_.state(weight).name));
    }

    /// Whether a parameter may be stored in the shorter format: the frozen matrices that are multiplied or
    /// looked up, and nothing else.
    bool is_shortened(const State& state) const {
        if (!rules_.stored || !state.frozen || state.kind != State::Kind::parameter ||
            state.type.dtype != DType::f32 || state.type.shape.rank() < 2)
            return false;
        const std::vector<NodeId>& readers = uses_.of(state.node);
        return !readers.empty() && std::ranges::all_of(readers, [&](NodeId reader) {
            if (reader < 0) return false;
            const Op& op = *source_.node(reader).op;
            return op.name == "embedding" || (op.autocast == AutocastClass::lower && !op.lowered);
        });
    }

    /// Whether it is a frozen weight that only its linear layer multiplies, in any format.
    bool is_of_trunk(const State& state) const {
        if (rules_.trunk == Layout::row_major || !state.frozen || state.type.dtype != DType::f32)
            return false;
        if (rules_.trunk == Layout::int4 && state.type.shape[-1] % 2 != 0) return false;
        const int index = source_.state_of(state.node);
        const std::vector<NodeId>& readers = uses_.of(state.node);
        return !readers.empty() && !tables_.contains(index) &&
               std::ranges::all_of(readers, [&](NodeId reader) {
                   return reader >= 0 && !is_convolution(source_.node(reader)) &&
                          weight_of_layer(source_, source_.node(reader)) == index &&
                          !source_.node(reader).origin.precision && layer_of_weight(state.name) != last_;
               });
    }

    void copy_source(NodeId id) {
        const Node& node = source_.node(id);
        if (node.op->name != "state") return rewriter_.copy(id);
        State state = source_.state(source_.state_of(id));
        const bool is_coded = is_of_trunk(state);
        if (!is_coded && !is_shortened(state)) return rewriter_.copy(id);
        state.type.dtype = rules_.stored.value_or(DType::f32);
        if (is_coded) state.type.layout = rules_.trunk;
        const OriginScope scope(target(), node.origin);
        const Value stored = target().add_state(std::move(state));
        stored_[{id, 0}] = stored;
        rewriter_.place({id, 0}, rules_.stored ? widened(stored) : stored);
    }

    Value widened(Value stored) { return {target().add("cast", {stored}, {{"dtype", DType::f32}}), 0}; }

    void add_states(NodeId id, const Adapter& adapter) {
        const Node& node = source_.node(id);
        const State& weight = source_.state(weight_of_layer(source_, node));
        if (!weight.frozen)
            throw UserError(fmt::format("'{}' has an adapter, so it must be frozen", weight.name));
        if (states_.contains(weight.node)) return;
        const std::string layer = layer_of_weight(weight.name);
        const Shape& shape = weight.type.shape;
        Shape of_a = shape, of_b = {shape[0], adapter.rank}, by_output = {shape[0]};
        of_a[is_convolution(node) ? -1 : 0] = adapter.rank;
        if (is_convolution(node)) {
            of_b = {1, 1, adapter.rank, shape[-1]};
            by_output = {1, 1, 1, shape[-1]};
        }
        const OriginScope scope(target(), node.origin);
        const auto added = [&](const char* part, Shape extents, const Initializer& initializer) {
            return target().add_state({.kind = State::Kind::parameter,
                                       .name = fmt::format("{}.{}.weight", layer, part),
                                       .type = {DType::f32, std::move(extents)},
                                       .initializer = initializer,
                                       .adapts = weight.name});
        };
        // As a layer of PyTorch begins: over 1 / sqrt(inputs) either way.
        const auto inputs = static_cast<double>(of_a.elements() / adapter.rank);
        States& states = states_[weight.node];
        states.a =
            added("lora_A", of_a, {.kind = Initializer::Kind::uniform, .limit = 1 / std::sqrt(inputs)});
        states.b = added("lora_B", of_b, {.kind = Initializer::Kind::constant});
        if (!adapter.magnitude) return;
        states.magnitude = target().add_state({.kind = State::Kind::parameter,
                                               .name = layer + ".lora_magnitude_vector",
                                               .type = {DType::f32, by_output},
                                               .initializer = {},
                                               .adapts = weight.name,
                                               .norms_of = weight.name});
        states.norm = target().add_state({.kind = State::Kind::derived,
                                          .name = "norm." + weight.name,
                                          .type = {DType::f32, by_output},
                                          .initializer = {},
                                          .norms_of = weight.name});
    }

    void visit(NodeId id) {
        const Node& node = source_.node(id);
        if (node.op->name == "embedding")
            if (const auto table = stored_.find(node.inputs[0]); table != stored_.end())
                return look_up(id, table->second);
        const std::optional<Adapter> adapter = adapter_of(id);
        if (!adapter) return rewriter_.copy(id);
        const OriginScope scope(target(), node.origin);
        std::vector<Value> inputs = rewriter_.map(node.inputs);
        const States& states = states_.at(node.inputs[1].node);
        Tensor bias;
        if (adapter->magnitude && inputs.size() > 2) {  // which is added behind
            bias = tensor(inputs.back());
            inputs.pop_back();
        }
        const Tensor y(target(), {target().add(node.op->name, inputs, node.attributes), 0});
        Tensor x = tensor(inputs[0]);
        if (adapter->dropout > 0 && rules_.random)
            x = dropout(x,
                        {tensor(rewriter_.map(rules_.random->seed.value())),
                         tensor(rewriter_.map(rules_.random->step.value()))},
                        adapter->dropout, next_random_operation_++);
        Tensor sum = y + cast(low_rank(node, x, states, adapter->scale), y.dtype());
        if (adapter->magnitude) {
            const Tensor factor =
                tensor(states.magnitude) * inverse_norm(node, tensor(inputs[1]), states, adapter->scale);
            sum = cast(sum * factor, y.dtype());
            if (bias) sum = sum + cast(bias, y.dtype());
        }
        rewriter_.place({id, 0}, sum.value());
    }

    Tensor tensor(Value value) { return {target(), value}; }

    /// s (x A^T) B^T, of the layer's shape.
    Tensor low_rank(const Node& node, Tensor x, const States& states, double scale) {
        const Tensor a = tensor(states.a), b = tensor(states.b);
        if (!is_convolution(node)) {
            const MatmulOptions by_rows{.transpose_b = true};
            return matmul(matmul(x, a, by_rows) * scale, b, by_rows);
        }
        const Tensor down = {target(),
                             {target().add(node.op->name, {x.value(), a.value()}, node.attributes), 0}};
        Shape shape = down.shape();
        const Tensor pixels = reshape(down, {-1, shape[-1]}) * scale;
        shape[-1] = b.dim(-1);
        return reshape(matmul(pixels, reshape(b, {-1, shape[-1]})), shape);
    }

    /// 1 / |W + s B A| by output, of the magnitude's shape; no gradient flows to it.
    Tensor inverse_norm(const Node& node, Tensor weight, const States& states, double scale) {
        // Matrices of a convolution are transposed: W [RSC, K], A [RSC, r], B [r, K].
        const bool is_transposed = is_convolution(node);
        const auto matrix = [&](Tensor whole) { return reshape(stop_gradient(whole), {-1, whole.dim(-1)}); };
        const Tensor a = matrix(tensor(states.a));
        Tensor b = matrix(tensor(states.b));
        if (is_transposed) b = transpose(b, {1, 0});
        const MatmulOptions over_inputs{.transpose_a = is_transposed, .transpose_b = !is_transposed};
        // Both [outputs, r]. Codes and scales are multiplied as the second operand alone.
        const Tensor of_both = is_transposed ? matmul(matrix(weight), a, over_inputs)
                                             : transpose(matmul(a, weight, over_inputs), {1, 0});
        const Tensor of_adapter = matmul(b, matmul(a, a, over_inputs));
        const Tensor more = sum(b * (of_both * (2 * scale) + of_adapter * (scale * scale)), {1});
        const Tensor norm = tensor(states.norm);
        const Tensor square = norm * norm + reshape(more, norm.shape());
        // An output without any weights has the magnitude 0, and not 0 / 0.
        return stop_gradient(rsqrt(maximum(square, static_cast<double>(std::numeric_limits<float>::min()))));
    }

    /// Rows of a table in its own format, and then widened.
    void look_up(NodeId id, Value table) {
        const Node& node = source_.node(id);
        const OriginScope scope(target(), node.origin);
        const NodeId rows = target().add(node.op->name, {table, rewriter_.map(node.inputs[1])});
        rewriter_.place({id, 0}, widened({rows, 0}));
    }

    const Graph& source_;
    const AdapterRules& rules_;
    Uses uses_;
    Rewriter rewriter_;
    std::set<int> tables_;
    std::string last_;                 ///< the last linear layer
    std::map<NodeId, States> states_;  ///< by the node of the weight in the source
    std::map<Value, Value> stored_;    ///< in the source, in the target: states in the shorter format
    std::int64_t next_random_operation_ = rules_.first_random_operation;
};

}  // namespace

std::string layer_of_weight(const std::string& weight) {
    check(weight.ends_with(weight_suffix), "a layer's weight is called so");
    return weight.substr(0, weight.size() - weight_suffix.size());
}

AdaptableLayers adaptable_layers(const Graph& graph) {
    const std::set<int> of_embeddings = tables(graph);
    AdaptableLayers layers;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const int weight = weight_of_layer(graph, graph.node(id));
        if (weight < 0) continue;
        layers.last = layer_of_weight(graph.state(weight).name);
        if (!of_embeddings.contains(weight) &&
            std::ranges::find(layers.names, layers.last) == layers.names.end())
            layers.names.push_back(layers.last);
    }
    return layers;
}

Graph add_adapters(const Graph& graph, const AdapterRules& rules, std::span<Value> kept) {
    return AddAdapters(graph, rules).run(kept);
}

}  // namespace mantissa
