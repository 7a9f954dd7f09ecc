#include "mantissa/passes/add_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

/// The state whose rows a linear layer multiplies; -1: the node is none.
int weight_of_linear(const Graph& graph, const Node& node) {
    if (node.op->name != "matmul" || !node.attributes.flag("transpose_b") ||
        node.attributes.flag("transpose_a"))
        return -1;
    const int state = graph.state_of(node.inputs[1].node);
    if (state < 0) return -1;
    const State& weight = graph.state(state);
    const bool is_matrix = weight.kind == State::Kind::parameter && weight.type.shape.rank() == 2;
    return is_matrix && weight.name.ends_with(weight_suffix) && weight.adapts.empty() ? state : -1;
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
          last_(linear_layers(source).last) {}

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
        Value a, b;  // f32 [r, inputs], f32 [outputs, r]
    };

    Graph& target() { return rewriter_.target(); }

    std::optional<Adapter> adapter_of(NodeId id) const {
        const int weight = weight_of_linear(source_, source_.node(id));
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

    /// Whether it is a frozen weight that only its linear layer multiplies, in whatever format that wants.
    bool is_of_trunk(const State& state) const {
        if (rules_.trunk == Layout::row_major || !state.frozen || state.type.dtype != DType::f32)
            return false;
        if (rules_.trunk == Layout::int4 && state.type.shape[-1] % 2 != 0) return false;
        const int index = source_.state_of(state.node);
        const std::vector<NodeId>& readers = uses_.of(state.node);
        return !readers.empty() && !tables_.contains(index) &&
               std::ranges::all_of(readers, [&](NodeId reader) {
                   return reader >= 0 && weight_of_linear(source_, source_.node(reader)) == index &&
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
        const State& weight = source_.state(weight_of_linear(source_, node));
        if (!weight.frozen)
            throw UserError(fmt::format("'{}' has an adapter, so it must be frozen", weight.name));
        if (states_.contains(weight.node)) return;
        const std::string layer = layer_of_weight(weight.name);
        const std::int64_t outputs = weight.type.shape[0], inputs = weight.type.shape[1];
        const OriginScope scope(target(), node.origin);
        const auto added = [&](const char* part, Shape shape, const Initializer& initializer) {
            return target().add_state({.kind = State::Kind::parameter,
                                       .name = fmt::format("{}.{}.weight", layer, part),
                                       .type = {DType::f32, std::move(shape)},
                                       .initializer = initializer,
                                       .adapts = weight.name});
        };
        // As a linear layer of PyTorch begins: over 1 / sqrt(inputs) either way.
        const Value a =
            added("lora_A", {adapter.rank, inputs},
                  {.kind = Initializer::Kind::uniform, .limit = 1 / std::sqrt(static_cast<double>(inputs))});
        const Value b = added("lora_B", {outputs, adapter.rank}, {.kind = Initializer::Kind::constant});
        states_[weight.node] = {a, b};
    }

    void visit(NodeId id) {
        const Node& node = source_.node(id);
        if (node.op->name == "embedding")
            if (const auto table = stored_.find(node.inputs[0]); table != stored_.end())
                return look_up(id, table->second);
        const std::optional<Adapter> adapter = adapter_of(id);
        if (!adapter) return rewriter_.copy(id);
        const OriginScope scope(target(), node.origin);
        const auto tensor = [&](Value value) { return Tensor(target(), value); };
        const std::vector<Value> inputs = rewriter_.map(node.inputs);
        const Tensor y(target(), {target().add(node.op->name, inputs, node.attributes), 0});
        const States& states = states_.at(node.inputs[1].node);
        const MatmulOptions by_rows{.transpose_b = true};
        Tensor x = tensor(inputs[0]);
        if (adapter->dropout > 0 && rules_.random)
            x = dropout(x,
                        {tensor(rewriter_.map(rules_.random->seed.value())),
                         tensor(rewriter_.map(rules_.random->step.value()))},
                        adapter->dropout, next_random_operation_++);
        const Tensor down = matmul(x, tensor(states.a), by_rows) * adapter->scale;
        rewriter_.place({id, 0}, (y + cast(matmul(down, tensor(states.b), by_rows), y.dtype())).value());
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

LinearLayers linear_layers(const Graph& graph) {
    const std::set<int> of_embeddings = tables(graph);
    LinearLayers layers;
    for (NodeId id = 0; id < graph.end(); ++id) {
        const int weight = weight_of_linear(graph, graph.node(id));
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
