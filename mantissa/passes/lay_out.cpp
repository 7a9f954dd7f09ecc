#include "mantissa/passes/lay_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/analysis/uses.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

class LayOut {
  public:
    explicit LayOut(const Graph& source)
        : source_(source), gives_(holds_what_a_run_gives(source)), rewriter_(source) {}

    LaidOut run() {
        copy_sources();
        for (NodeId i = 0; i < source_.end(); ++i)
            if (is_derived(i)) derive(i);
        for (NodeId id = 0; id < source_.end(); ++id) {
            if (is_from_outside(source_.node(id)) || is_derived(id)) continue;
            const int parameter = parameter_to_copy_in(id);
            if (parameter >= 0)
                update_with_copy(id, first_copy_of(parameter));
            else
                rewriter_.copy(id);
        }
        Graph graph = rewriter_.finish();
        update_others(graph);
        return {std::move(graph), std::move(derive_)};
    }

  private:
    /// The copy that is made from a parameter: a node of the source, and the first of the states for its
    /// outputs.
    struct Derivation {
        NodeId node = -1;
        int parameter = -1;
        int state = -1;  ///< in the target
        bool written = false;
    };

    Graph& target() { return rewriter_.target(); }

    bool is_derived(NodeId id) const {
        const Node& node = source_.node(id);
        const std::string_view op = node.op->name;
        if (op != "cast" && op != "quantize_weight" && op != "round_blocks") return false;
        // A result is read when the run is over, and the state has been replaced.
        if (gives_[id]) return false;
        return parameter_under(node) >= 0;
    }

    /// The rows of zeros that a cast reads behind its operand, as passes/pad put them there; null: none.
    const Node* padding_under(const Node& node) const {
        const Node& read = source_.node(node.inputs[0].node);
        return node.op->name == "cast" && read.op->name == "pad" ? &read : nullptr;
    }

    /// The parameter that the node makes something of, as it is or with rows of zeros that lie behind it; -1:
    /// none.
    int parameter_under(const Node& node) const {
        const Node* const padding = padding_under(node);
        if (padding && !is_view(source_, *padding)) return -1;
        const int state = source_.state_of(padding ? padding->inputs[0].node : node.inputs[0].node);
        const auto kind_of = [this](int i) { return source_.state(i).kind; };
        return state >= 0 && kind_of(state) == State::Kind::parameter ? state : -1;
    }

    /// Copies nodes without operands first, so that states keep their indices and new ones follow them.
    void copy_sources() {
        for (NodeId i = 0; i < source_.end(); ++i)
            if (is_from_outside(source_.node(i))) rewriter_.copy(i);
    }

    static std::string name_of_derived(const Node& node, std::size_t output, const std::string& parameter) {
        const std::string_view format = name_of(node.outputs[0].dtype);
        if (node.op->name == "cast") return fmt::format("{}.{}", format, parameter);
        if (node.op->name == "round_blocks")
            return fmt::format("{}{}.axis{}.{}{}", node.attributes.word("element"),
                               node.attributes.has("fp8") ? ".fp8" : "", node.attributes.integer("axis"),
                               output == 0   ? ""
                               : output == 1 ? "factor."
                                             : "largest.",
                               parameter);
        return fmt::format("{}.{}{}", node.attributes.word("format"), output == 0 ? "" : "scale.", parameter);
    }

    void derive(NodeId id) {
        const Node& node = source_.node(id);
        const int parameter = parameter_under(node);
        const State& from = source_.state(parameter);
        Derivation made{.node = id,
                        .parameter = parameter,
                        .state = static_cast<int>(target().states().size()),
                        .written = false};
        const bool known = target().find_state(name_of_derived(node, 0, from.name)) >= 0;
        if (!known) {
            const OriginScope scope(derive_, node.origin);
            if (derive_.find_state(from.name) < 0) derive_.add_state(from);
            const Value operand{derive_.state(derive_.find_state(from.name)).node, 0};
            const NodeId maker = derive_.add(node.op->name, {operand}, node.attributes);
            const std::vector<Type> made_types = derive_.node(maker).outputs;
            for (std::size_t i = 0; i < node.outputs.size(); ++i) {
                const State state{.kind = State::Kind::derived,
                                  .name = name_of_derived(node, i, from.name),
                                  .type = made_types[i],
                                  .initializer = {},
                                  .zero_rows = node.op->name == "cast" ? from.zero_rows : 0};
                target().add_state(state);
                derive_.add_state(state);
                derive_.add_update(derive_.find_state(state.name), {maker, static_cast<std::int32_t>(i)});
            }
            derivations_.push_back(made);
        }
        for (std::size_t i = 0; i < node.outputs.size(); ++i) {
            const int state = target().find_state(name_of_derived(node, i, from.name));
            Value made_before{target().state(state).node, 0};
            if (const Node* const padding = padding_under(node)) {
                const OriginScope scope(target(), padding->origin);
                made_before = {target().add("pad", {made_before}, padding->attributes), 0};
            }
            rewriter_.place({id, static_cast<std::int32_t>(i)}, made_before);
        }
    }

    /// The parameter whose new value the node makes, if it can make a copy with it, does not yet, and there
    /// is one to make; -1: none.
    int parameter_to_copy_in(NodeId id) const {
        const Node& node = source_.node(id);
        if (!node.op->copy || node.op->takes_copy(node.inputs.size(), node.attributes)) return -1;
        for (const Update& update : source_.updates()) {
            if (update.value != Value{id, 0}) continue;
            for (const Derivation& made : derivations_)
                if (made.parameter == update.state && source_.node(made.node).op->name == "cast")
                    return update.state;
        }
        return -1;
    }

    std::size_t first_copy_of(int parameter) const {
        const auto is_copy = [&](const Derivation& made) {
            return made.parameter == parameter && source_.node(made.node).op->name == "cast";
        };
        return static_cast<std::size_t>(std::find_if(derivations_.begin(), derivations_.end(), is_copy) -
                                        derivations_.begin());
    }

    /// The update writes the copy beside the parameter, which so is rounded while it is at hand.
    void update_with_copy(NodeId id, std::size_t copy) {
        const Node& node = source_.node(id);
        Derivation& made = derivations_[copy];
        std::vector<Value> inputs = rewriter_.map(node.inputs);
        inputs.push_back({target().state(made.state).node, 0});
        Origin origin = node.origin;
        origin.rule = "copy, " + source_.node(made.node).origin.rule;
        const OriginScope scope(target(), std::move(origin));
        const NodeId added = target().add(node.op->name, std::move(inputs), node.attributes);
        const auto outputs = static_cast<std::int32_t>(node.outputs.size());
        for (std::int32_t i = 0; i < outputs; ++i) rewriter_.place({id, i}, {added, i});
        target().add_update(made.state, {added, outputs});  // the copy comes last
        made.written = true;
    }

    /// A copy that nothing else wrote is made anew from the parameter's new value.
    void update_others(Graph& graph) const {
        for (const Derivation& made : derivations_) {
            if (made.written) continue;
            const auto updates = graph.updates();
            for (const Update& update : updates) {
                if (update.state != made.parameter) continue;
                const Node& node = source_.node(made.node);
                Origin origin = node.origin;
                origin.stage = Stage::update;
                const OriginScope scope(graph, std::move(origin));
                const NodeId maker = graph.add(node.op->name, {update.value}, node.attributes);
                for (std::size_t i = 0; i < node.outputs.size(); ++i)
                    graph.add_update(made.state + static_cast<int>(i), {maker, static_cast<std::int32_t>(i)});
            }
        }
    }

    const Graph& source_;
    std::vector<bool> gives_;  ///< by node of the source: whether it holds a result or an update
    Rewriter rewriter_;
    Graph derive_;
    std::vector<Derivation> derivations_;
};

}  // namespace

LaidOut lay_out(const Graph& graph) { return LayOut(graph).run(); }

}  // namespace mantissa
