// The graph: operations in the order in which they were added, each taking values of earlier ones.
//
// A graph is also the unit that runs: it reads `inputs` (given anew for every run) and `states` (kept between
// runs), gives `results`, and at its end replaces states by the values of `updates`. It has a text that
// people and golden tests read, and a verifier of the rules that every pass relies on and must keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/op.h"

namespace mantissa::inline v0 {

/// The part of a training step that a node belongs to.
enum class Stage : std::uint8_t { forward, backward, update };
std::string_view name_of(Stage stage);

/// A line of the program that traces a model, in any language.
struct Line {
    std::string file;          ///< its name without folders: "gpt2.cpp"
    std::uint32_t number = 0;  ///< from 1; 0: unknown

    Line() = default;
    Line(std::string_view path, std::uint32_t number_in_it);
    Line(const std::source_location& at) : Line(at.file_name(), at.line()) {}  // NOLINT(*-explicit-*)

    explicit operator bool() const { return number != 0; }
    /// "gpt2.cpp:42"; empty where it is unknown.
    std::string text() const;
};

/// Where a node comes from: the model's own names, the line that traced it if it is known, and the rule of
/// the precision policy that decided its formats.
struct Origin {
    std::string scope;  ///< as in "h.3.mlp"
    Stage stage = Stage::forward;
    Line line = {};
    std::string rule = {};                ///< as in "bf16 list: matmul"; empty: the formats of its operands
    std::optional<DType> precision = {};  ///< forced by the model's code; see PrecisionScope
};

/// Throws UserError: the operation, " (traced in h.0.attn at gpt2.cpp:42)" as far as it is known, and the
/// reason.
[[noreturn]] void refuse(std::string_view op, const Origin& origin, std::string_view what);

// Rules of a node that computes another node's value again, so that it need not be kept; `explain` prints
// them. The two nodes are never made one.
inline constexpr std::string_view recomputed_rule = "recomputed";
/// The rules of a definition that walks more than once over its operands: no kernel has the same value of two
/// walks, for it would write the value for the later one.
inline constexpr std::string_view second_walk_rule = "recomputed in a second walk";
inline constexpr std::string_view third_walk_rule = "recomputed in a third walk";

struct Node {
    const Op* op = nullptr;
    std::vector<Value> inputs;
    std::vector<Type> outputs;
    Attributes attributes;
    Origin origin;
};

/// Whether its value is there without running: an input, a state, or a constant.
bool is_source(const Node& node);
/// Whether it is an input or a state of the graph.
bool is_from_outside(const Node& node);
/// Whether its value is written once, when the graph is bound to memory.
bool is_constant(const Node& node);

/// A value that lives from one run to the next.
struct State {
    enum class Kind : std::uint8_t {
        parameter,
        optimizer,
        gradient,
        cache,
        running,  ///< a statistic of the batches seen: good steps update it, nothing differentiates by it
        derived   ///< follows from parameters: made at start, rewritten with them, never saved
    } kind = Kind::parameter;
    std::string name;
    Type type;
    Initializer initializer;
    /// Rows of zeros that are kept behind its own, which `pad` may view. Nobody ever writes them.
    std::int64_t zero_rows = 0;
    /// The whole tensor's shape, where this state is one rank's part of it (ranks/shard.h); none: the state
    /// is whole.
    std::optional<Shape> shard_of = {};
    /// Whether training keeps it as it is: nothing differentiates by it, and it has no update.
    bool frozen = false;
    /// The weight that this one, a part of an adapter, stands beside (passes/add_adapters.h); empty: it is
    /// the model's own.
    std::string adapts = {};
    /// The weight whose norms by output (rows of a matrix, last axis of filters) it begins with, anew
    /// whenever the weight is written from outside. Empty: it follows no weight.
    std::string norms_of = {};
    /// Writes its first values, where they exist already; empty: the initializer draws them.
    std::function<void(std::span<std::byte>)> values = {};
    NodeId node = -1;

    /// Its value and the rows of zeros behind it.
    std::int64_t stored_bytes() const;
};

struct Update {
    int state = 0;  ///< index into states()
    Value value;    ///< of the state's type
};

struct Result {
    std::string name;
    Value value;
};

/// Whether it was learned, or seen while learning.
inline bool is_weight(const State& state) {
    return state.kind == State::Kind::parameter || state.kind == State::Kind::running;
}
/// Whether it is a part of an adapter, which lies in files of its own; and whether a model's file holds it.
inline bool is_of_adapter(const State& state) { return !state.adapts.empty(); }
inline bool is_own_weight(const State& state) { return is_weight(state) && !is_of_adapter(state); }

class Graph {
  public:
    /// Adds an operation and infers its types. Throws UserError, naming the operation and where it was
    /// traced, if the operands do not fit.
    NodeId add(std::string_view op, std::vector<Value> inputs, Attributes attributes = {});

    /// A value given anew for every run.
    Value add_input(const std::string& name, Type type);
    /// A value that is kept. `state.node` is filled in. Throws UserError, naming both lines, if the name is
    /// taken.
    Value add_state(State state);
    /// Freezes the weights added from now on whose names match a pattern (base/name_pattern.h).
    void freeze(std::vector<std::string> patterns) { frozen_ = std::move(patterns); }
    void add_result(std::string name, Value value);
    /// Hands over its results, and has none then.
    std::vector<Result> take_results() { return std::exchange(results_, {}); }
    /// At the end of a run the state takes this value. Throws UserError if there is no such state, if the
    /// value has another type, and if the state has an update or is frozen.
    void add_update(int state, Value value);
    /// The state that had an update takes this value instead.
    void replace_update(int state, Value value);
    /// The state that had an update stays as it is.
    void drop_update(int state);

    std::size_t size() const { return nodes_.size(); }
    /// One past the last node's id.
    NodeId end() const { return static_cast<NodeId>(nodes_.size()); }
    const Node& node(NodeId id) const {
        check(id >= 0 && id < end(), "the graph has a node of this id");
        return nodes_[static_cast<std::size_t>(id)];
    }
    const Type& type(Value value) const {
        return node(value.node).outputs[static_cast<std::size_t>(value.output)];
    }
    std::vector<Type> input_types(const Node& node) const;

    const std::vector<NodeId>& inputs() const { return inputs_; }
    const std::vector<State>& states() const { return states_; }
    const State& state(int index) const {
        check(index >= 0 && index < std::ssize(states_), "the graph has a state of this index");
        return states_[static_cast<std::size_t>(index)];
    }
    const std::vector<Update>& updates() const { return updates_; }
    const std::vector<Result>& results() const { return results_; }
    /// The index of the state read by a node, or -1.
    int state_of(NodeId id) const;
    /// The index of the state of that name, or -1.
    int find_state(std::string_view name) const;

    /// Lets the nodes from `first` on read `to` where they read `from`.
    void replace_uses(Value from, Value to, NodeId first);

    /// The origin that new nodes are given.
    Origin origin;

  private:
    std::deque<Node> nodes_;  // a deque: references stay good while nodes are added
    std::vector<NodeId> inputs_;
    std::vector<State> states_;
    std::vector<std::string> frozen_;  ///< patterns of names
    std::vector<Update> updates_;
    std::vector<Result> results_;
};

/// While alive, nodes of `graph` are added under another scope, stage or both.
class OriginScope {
  public:
    /// Adds `name` to the end of the scope, after a dot.
    OriginScope(Graph& graph, std::string_view name);
    OriginScope(Graph& graph, Origin origin);
    ~OriginScope();
    OriginScope(const OriginScope&) = delete;
    OriginScope& operator=(const OriginScope&) = delete;

  private:
    Graph& graph_;
    Origin saved_;
};

/// While alive, nodes of `graph` are traced at this line, unless a line is named already: the line of the
/// layer's caller, not the layer's own.
class LineScope {
  public:
    LineScope(Graph& graph, const std::source_location& line) : graph_(graph), named_(!graph.origin.line) {
        if (named_) graph_.origin.line = line;
    }
    ~LineScope() {
        if (named_) graph_.origin.line = {};
    }
    LineScope(const LineScope&) = delete;
    LineScope& operator=(const LineScope&) = delete;

  private:
    Graph& graph_;
    bool named_;
};

/// While alive, nodes of `graph` keep to a format whatever the policy: autocast casts their operands to it.
///
///     const PrecisionScope exact(graph, DType::f32);
///     scores = matmul(q, k, {.transpose_b = true});      // FP32 under bf16, too
class PrecisionScope {
  public:
    /// Throws UserError unless it is f32, bf16 or f16.
    PrecisionScope(Graph& graph, DType precision);
    ~PrecisionScope();
    PrecisionScope(const PrecisionScope&) = delete;
    PrecisionScope& operator=(const PrecisionScope&) = delete;

  private:
    Graph& graph_;
    std::optional<DType> saved_;
};

/// A line a node, as in
///   %12: f32[4, 64, 128] = layer_norm(%10, %h.0.ln_1.weight, %h.0.ln_1.bias) {epsilon=1e-05}  # h.0.ln_1
/// then results and updates. Inputs and states are called by their names.
std::string print(const Graph& graph);

/// The one line of a node.
std::string print(const Graph& graph, NodeId id);

/// Throws InternalError, naming `after` and the node, unless
/// - operands come before their users and exist, in the number that the operation takes;
/// - the outputs' types follow from the operation's rule;
/// - inputs, states, results and updates name existing values of the right type, each state updated at most
/// once.
void verify(const Graph& graph, std::string_view after);

}  // namespace mantissa
