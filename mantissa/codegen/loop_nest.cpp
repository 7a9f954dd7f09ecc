#include "mantissa/codegen/loop_nest.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "mantissa/passes/contract_products.h"

namespace mantissa::inline v0::codegen {

namespace {

/// Cost up to which a later walk computes a value again rather than keeping it. That is about the time of a
/// store to a scratch row and a load from it, with a load of an operand counted as one.
constexpr int cheap = 8;

/// Instructions of a step; some steps are no operations of a graph.
int cost_of(std::string_view op) {
    return nest_instructions(std::ranges::find(own_steps, op) != std::end(own_steps) ? "exp" : op);
}

Varies joined(Varies a, Varies b) {
    if (a == Varies::not_at_all || a == b) return b;
    return b == Varies::not_at_all ? a : Varies::by_both;
}

Varies varies_with(const Access& access) {
    if (access.rows) return access.columns ? Varies::by_both : Varies::by_row;
    return access.columns ? Varies::by_column : Varies::not_at_all;
}

class Lowering {
  public:
    explicit Lowering(const Graph& body) : body_(body), step_of_(body.size(), -1), uses_(body.size()) {
        for (NodeId id = 0; id < body.end(); ++id)
            if (body.node(id).op->name != "input") nodes_.push_back(id);
        for (std::size_t i = 0; i < body.inputs().size(); ++i) {
            operand_of_[body.inputs()[i]] = static_cast<int>(i);
            out_.inputs.push_back(body.node(body.inputs()[i]).outputs[0].dtype);
        }
        for (const Result& result : body.results()) {
            out_.outputs.push_back(body.type(result.value).dtype);
            ++uses_[result.value.node];
        }
        for (NodeId id : nodes_)
            for (const Value& input : body.node(id).inputs) ++uses_[input.node];
        for (NodeId id : nodes_) count_beside_one(id);
    }

    LoopNest run(Nest nest, bool epilogue) {
        nest_ = std::move(nest);
        out_.flat = nest_.flat;
        out_.epilogue = epilogue;
        out_.columns = nest_.flat ? 0 : nest_.columns;
        for (NodeId id : nodes_) add_node(id);
        place_outputs();
        place_by_row();
        for (std::size_t walk = 0; walk < out_.walks.size(); ++walk) fill_walk(static_cast<int>(walk));
        count_bytes();
        return std::move(out_);
    }

  private:
    Step& step(int index) { return out_.steps[index]; }
    int& level(int index) { return level_[index]; }
    static bool in_walk(Varies varies) { return varies == Varies::by_both || varies == Varies::by_column; }

    /// A step after its arguments; varies and is known as they do.
    int add(Step added) {
        int known = 0;
        if (added.op != "load" && added.op != "iota") {
            added.varies = Varies::not_at_all;
            for (int argument : added.arguments) {
                added.varies = joined(added.varies, step(argument).varies);
                known = std::max(known, level(argument));
            }
        }
        out_.steps.push_back(std::move(added));
        level_.push_back(known);
        computed_in_.push_back(-1);
        return static_cast<int>(out_.steps.size()) - 1;
    }

    int load(int operand, DType dtype, const Access& access) {
        const auto key = std::tuple(operand, access.rows, access.columns, access.divide, access.modulo);
        const auto [entry, is_new] = loads_.try_emplace(key, -1);
        if (is_new)
            entry->second = add({.op = "load",
                                 .dtype = dtype,
                                 .varies = varies_with(access),
                                 .operand = operand,
                                 .access = access});
        return entry->second;
    }

    int argument(NodeId id, std::size_t index) {
        const Value input = body_.node(id).inputs[index];
        const auto operand = operand_of_.find(input.node);
        if (operand == operand_of_.end()) return step_of_[input.node];
        return load(operand->second, body_.type(input).dtype, nest_.reads.at({id, index}));
    }

    void add_node(NodeId id) {
        const Node& node = body_.node(id);
        int& result = step_of_[id];
        const DType dtype = node.outputs[0].dtype;
        if (node.op->name == "constant") {
            result = add({.op = "constant", .dtype = dtype, .constant = node.attributes.number("value")});
        } else if (node.op->name == "iota") {
            const Access access =
                counted_by(node.outputs[0].shape, static_cast<int>(node.attributes.integer("axis")),
                           nest_.values.at({id, 0}));
            result = add({.op = "iota", .dtype = dtype, .varies = varies_with(access), .access = access});
        } else if (node.op->name == "reshape" || node.op->name == "broadcast" ||
                   node.op->name == "stop_gradient") {
            result = argument(id, 0);
        } else if (reduces(body_, node) != Reduces::nothing) {
            result = add_reduction(id, node);
        } else if (node.op->name == "add" && dtype == DType::f32 && one_plus_tanh(id)) {
            return;
        } else if (node.op->name == "mul" && dtype == DType::f32 && times_one_plus_tanh(id)) {
            return;
        } else if (dtype == DType::f32 && softmax_of(id)) {
            return;
        } else {
            Step added{.op = node.op->name, .dtype = dtype};
            for (std::size_t i = 0; i < node.inputs.size(); ++i) added.arguments.push_back(argument(id, i));
            result = add(std::move(added));
        }
    }

    /// The node that makes an operand, if nothing else reads it.
    const Node* only_read_by(NodeId id, std::size_t index) const {
        const Value input = body_.node(id).inputs[index];
        return uses_[input.node] == 1 ? &body_.node(input.node) : nullptr;
    }

    bool is_one(Value value) const {
        const Node& node = body_.node(value.node);
        return node.op->name == "constant" && node.attributes.number("value") == 1;
    }

    /// The t of an addition t + 1 or 1 - t t, if t is a tanh; else -1. Differentiating tanh makes 1 - t t.
    NodeId tanh_beside_one(NodeId id) const {
        const Node& node = body_.node(id);
        if (node.op->name != "add" || node.outputs[0].dtype != DType::f32) return -1;
        for (std::size_t i : {0u, 1u}) {
            if (!is_one(node.inputs[1 - i])) continue;
            NodeId at = node.inputs[i].node;
            const Node* square = negated_only_by(id, i);
            if (square && square->op->name == "mul" && square->inputs[0] == square->inputs[1])
                at = square->inputs[0].node;
            if (body_.node(at).op->name == "tanh") return at;
        }
        return -1;
    }

    /// x of -x and of nothing else, where an operand is that and nothing else reads it.
    const Node* negated_only_by(NodeId id, std::size_t index) const {
        const Node* negated = only_read_by(id, index);
        if (!negated || negated->op->name != "neg") return nullptr;
        return only_read_by(body_.node(id).inputs[index].node, 0);
    }

    void count_beside_one(NodeId id) {
        const NodeId from = tanh_beside_one(id);
        if (from < 0) return;
        const bool squared = body_.node(id).inputs[0].node != from && body_.node(id).inputs[1].node != from;
        beside_one_[from] += squared ? 2 : 1;
    }

    /// Both t + 1 and 1 - t t, where nothing else reads t = tanh(x): p = t + 1 is the logistic function,
    /// which takes one exponential and no more, and 1 - t t is p (2 - p).
    bool logistic(NodeId id) {
        const NodeId from = tanh_beside_one(id);
        if (from < 0) return false;
        const int uses = uses_[from];
        if (uses < 2 || beside_one_[from] != uses) return false;
        const auto [entry, is_new] = logistic_.try_emplace(from, -1);
        if (is_new)
            entry->second =
                add({.op = "one_plus_tanh", .dtype = DType::f32, .arguments = {argument(from, 0)}});
        const int p = entry->second;
        const Node& node = body_.node(id);
        int& result = step_of_[id];
        result = p;
        if (node.inputs[0].node == from || node.inputs[1].node == from) return true;
        const int two = add({.op = "constant", .dtype = DType::f32, .constant = 2});
        const int rest = add({.op = "sub", .dtype = DType::f32, .arguments = {two, p}});
        result = add({.op = "mul", .dtype = DType::f32, .arguments = {p, rest}});
        return true;
    }

    /// Additions to tanh of 1: the logistic function, which needs one exponential and loses no digits where
    /// tanh is near -1.
    bool one_plus_tanh(NodeId id) {
        if (logistic(id)) return true;
        for (std::size_t i : {0u, 1u}) {
            const Node* made = only_read_by(id, i);
            if (!made || made->op->name != "tanh" || !is_one(body_.node(id).inputs[1 - i])) continue;
            step_of_[id] = add({.op = "one_plus_tanh",
                                .dtype = DType::f32,
                                .arguments = {argument(body_.node(id).inputs[i].node, 0)}});
            return true;
        }
        return false;
    }

    /// A product with tanh + 1, as GELU is one: the quotient takes the other factor above its line.
    bool times_one_plus_tanh(NodeId id) {
        for (std::size_t i : {0u, 1u}) {
            if (!only_read_by(id, i)) continue;
            const int made = argument(id, i);
            const auto shared = [made](const auto& entry) { return entry.second == made; };
            if (step(made).op != "one_plus_tanh" || std::ranges::any_of(logistic_, shared)) continue;
            const int x = step(made).arguments[0];
            step_of_[id] = add(
                {.op = "times_one_plus_tanh", .dtype = DType::f32, .arguments = {argument(id, 1 - i), x}});
            return true;
        }
        return false;
    }

    /// Softmax's exp(x - max(x)) without the tests that it does not need, and its quotient by their sum with
    /// one reciprocal. Not cross-entropy's, since older checkpoints go on with its bits.
    bool softmax_of(NodeId id) {
        const std::string_view op = body_.node(id).op->name;
        if (op != "exp" && op != "div") return false;
        const int first = argument(id, 0);
        if (op == "exp") {
            if (step(first).op != "sub" || !shifts_.contains(step(first).arguments[1])) return false;
            step_of_[id] = add({.op = "exp_up_to_zero", .dtype = DType::f32, .arguments = {first}});
            return true;
        }
        const int divisor = argument(id, 1);
        if (step(first).op != "exp_up_to_zero" || step(divisor).varies != Varies::by_row) return false;
        const int one = add({.op = "constant", .dtype = DType::f32, .constant = 1});
        const int inverse = add({.op = "div", .dtype = DType::f32, .arguments = {one, divisor}});
        step_of_[id] = add({.op = "mul", .dtype = DType::f32, .arguments = {first, inverse}});
        return true;
    }

    static bool is_renaming(const Node& node) {
        return node.op->name == "reshape" || node.op->name == "broadcast";
    }

    /// Whether `holds` for all readers of a node, beyond new names for it, and it is no result.
    bool all_readers(NodeId id, FunctionRef<bool(const Node&, NodeId)> holds) const {
        const auto is_it = [&](const Result& result) { return result.value.node == id; };
        if (std::ranges::any_of(body_.results(), is_it)) return false;
        return std::ranges::all_of(nodes_, [&](NodeId reader) {
            const Node& node = body_.node(reader);
            const auto reads = [&](const Value& input) { return input.node == id; };
            if (std::ranges::none_of(node.inputs, reads)) return true;
            return is_renaming(node) ? all_readers(reader, holds) : holds(node, reader);
        });
    }

    const Node& named(Value value) const {
        while (is_renaming(body_.node(value.node))) value = body_.node(value.node).inputs[0];
        return body_.node(value.node);
    }

    /// Whether a maximum is one that softmax subtracts: the sum of its exponentials meets every NaN.
    bool only_shifts(NodeId highest) const {
        const auto is_by_sum = [&](const Node& node, NodeId) {
            return reduces(body_, node) == Reduces::row ||
                   (node.op->name == "div" && reduces(body_, named(node.inputs[1])) == Reduces::row);
        };
        const auto is_exponential = [&](const Node& node, NodeId id) {
            return node.op->name == "exp" && all_readers(id, is_by_sum);
        };
        return all_readers(highest, [&](const Node& node, NodeId id) {
            return node.op->name == "sub" && node.inputs[0] == body_.node(highest).inputs[0] &&
                   all_readers(id, is_exponential);
        });
    }

    Walk& walk(int index) {
        if (static_cast<int>(out_.walks.size()) <= index)
            out_.walks.resize(static_cast<std::size_t>(index) + 1);
        return out_.walks[index];
    }

    /// A reduction along the row gives a value a row; a sum over rows is an output, and adds up its operand's
    /// value of each row.
    int add_reduction(NodeId id, const Node& node) {
        const int value = argument(id, 0);
        const Varies varies = nest_.values.at({id, 0});
        if (varies == Varies::by_column) {
            sums_[id] = {.value = value, .columns = true};
            return value;
        }
        const bool of_rows = !out_.flat && inner_varies(node) == Varies::by_row;
        const int along = of_rows ? value : add_row_reduction(id, value);
        if (varies == Varies::not_at_all) sums_[id] = {.value = along, .columns = false};
        return along;
    }

    /// How the operand of a reduction varies in the graph, whatever it was computed from.
    Varies inner_varies(const Node& node) const {
        const auto entry = nest_.values.find(node.inputs[0]);
        return entry == nest_.values.end() ? Varies::by_both : entry->second;
    }

    int add_row_reduction(NodeId id, int value) {
        const std::string_view op = body_.node(id).op->name;
        const bool is_maximum = op == "max", is_shift = is_maximum && only_shifts(id);
        const int result = add({.op = op, .dtype = step(value).dtype, .arguments = {value}});
        step(result).varies = Varies::by_row;
        level(result) = level(value) + 1;
        walk(level(value))
            .reductions.push_back(
                {.result = result, .value = value, .maximum = is_maximum, .of_numbers = is_shift});
        if (is_shift) shifts_.insert(result);
        return result;
    }

    void place_outputs() {
        for (std::size_t i = 0; i < body_.results().size(); ++i) {
            const Value value = body_.results()[i].value;
            const auto sum = sums_.find(value.node);
            const int index = step_of_[value.node];
            if (sum != sums_.end()) {
                place_sum(sum->second, static_cast<int>(i));
                continue;
            }
            const Varies varies = nest_.values.at(value);
            check(varies == Varies::by_both || varies == Varies::by_row,
                  "a nest gives values that vary by row, and sums over rows");
            const Store store{.value = index, .output = static_cast<int>(i)};
            if (varies == Varies::by_both)
                walk(level(index)).stores.push_back(store);
            else
                walk(std::max(level(index) - 1, 0)).row_stores.push_back(store);
        }
        if (out_.walks.empty()) walk(0);
    }

    void place_sum(RowSum sum, int output) {
        sum.output = output;
        sum.offset = out_.partial_sums;
        // A block's sums of columns start on a cache line of their own.
        out_.partial_sums += sum.columns ? align_up(out_.columns, 16) : 16;
        if (sum.columns)
            walk(level(sum.value)).sums.push_back(sum);
        else
            walk(std::max(level(sum.value) - 1, 0)).row_sums.push_back(sum);
    }

    void place_by_row() {
        for (int i = 0; i < static_cast<int>(out_.steps.size()); ++i) {
            const Step& placed = step(i);
            if (placed.varies == Varies::not_at_all) {
                out_.once.push_back(i);
            } else if (placed.varies == Varies::by_row && !is_row_reduction(i)) {
                if (level(i) == 0)
                    out_.row_steps.push_back(i);
                else
                    walk(level(i) - 1).row_steps.push_back(i);
            }
        }
    }

    bool is_row_reduction(int index) { return step(index).op == "sum" || step(index).op == "max"; }

    void fill_walk(int index) {
        const auto roots = [](const auto& list, auto&& visit) {
            for (const auto& entry : list) visit(entry.value);
        };
        std::vector<int> needed;
        const auto note = [&](int value) { needed.push_back(value); };
        Walk& now = walk(index);
        roots(now.reductions, note);
        roots(now.stores, note);
        roots(now.sums, note);
        present_.assign(out_.steps.size(), false);
        for (int value : needed) need(value, index);
        for (int value : now.steps) {
            int& first = computed_in_[value];
            if (first < 0) first = index;
        }
    }

    /// Sees that a value is there in a walk: kept from an earlier one, or computed.
    void need(int value, int index) {
        if (!in_walk(step(value).varies) || present_[value]) return;
        present_[value] = true;
        const int first = computed_in_[value];
        if (first >= 0 && tree_cost(value) > cheap) {
            const auto [entry, is_new] = kept_.try_emplace(value, out_.scratch_rows);
            if (is_new) {
                ++out_.scratch_rows;
                walk(first).kept.push_back({.value = value, .row = entry->second});
            }
            walk(index).reread.push_back({.value = value, .row = entry->second});
            return;
        }
        for (int argument : step(value).arguments) need(argument, index);
        walk(index).steps.push_back(value);
    }

    /// Instructions to compute a value from the operands once more; counting stops beyond `cheap`.
    int tree_cost(int value) {
        if (!in_walk(step(value).varies)) return 0;
        int total = cost_of(step(value).op);
        for (int argument : step(value).arguments) {
            if (total > cheap) return total;
            total += tree_cost(argument);
        }
        return total;
    }

    void count_bytes() {
        const auto bytes = [&](DType dtype) {
            return static_cast<std::int64_t>(size_of(dtype)) * (out_.flat ? 1 : out_.columns);
        };
        for (const auto& [key, index] : loads_)
            if (step(index).varies == Varies::by_both) out_.bytes_per_row += bytes(step(index).dtype);
        for (const Walk& each : out_.walks)
            for (const Store& store : each.stores) out_.bytes_per_row += bytes(out_.outputs[store.output]);
    }

    const Graph& body_;
    Nest nest_;
    LoopNest out_;
    std::vector<NodeId> nodes_;
    std::map<NodeId, int> operand_of_;
    std::vector<int> step_of_;      // by node
    std::vector<int> uses_;         // by node: how often it is read, results included
    std::vector<int> level_;        // by step: row reductions that it waits for, one after another
    std::vector<int> computed_in_;  // by step: the first walk that computes it, or -1
    std::vector<bool> present_;     // by step: whether the walk being filled has it
    std::map<int, int> kept_;       // scratch row by step
    std::map<std::tuple<int, bool, bool, std::int64_t, std::int64_t>, int> loads_;
    std::map<NodeId, RowSum> sums_;
    std::set<int> shifts_;              // steps of maxima that softmax subtracts
    std::map<NodeId, int> beside_one_;  // by tanh: how many of its uses are t + 1 or 1 - t t
    std::map<NodeId, int> logistic_;    // the step of tanh + 1, by a tanh that has only such uses
};

/// Bytes of a GPU's shared memory, without asking the driver for more: a block's on every architecture, less
/// a number a warp for 32 warps at most.
constexpr std::int64_t max_shared_bytes = 48 * 1024 - 32 * sizeof(float);

}  // namespace

std::int64_t global_scratch_floats(const LoopNest& nest) {
    const std::int64_t floats = scratch_floats(nest);
    return floats * static_cast<std::int64_t>(sizeof(float)) > max_shared_bytes ? floats : 0;
}

int condition_of(const LoopNest& nest) {
    if (!nest.flat || nest.walks[0].stores.empty()) return -1;
    const auto decides = [&](const Store& store) {
        const Step& step = nest.steps[static_cast<std::size_t>(store.value)];
        return step.op == "select" ? step.arguments[0] : -1;
    };
    const std::vector<Store>& stores = nest.walks[0].stores;
    const int condition = decides(stores[0]);
    if (std::ranges::find(nest.once, condition) == nest.once.end()) return -1;
    const auto differs = [&](const Store& store) { return decides(store) != condition; };
    return std::ranges::any_of(stores, differs) ? -1 : condition;
}

std::vector<bool> read_where_it_holds(const LoopNest& nest) {
    const int condition = condition_of(nest);
    std::vector<bool> read(nest.inputs.size()), seen(nest.steps.size());
    std::vector<int> needed;
    for (const Store& store : nest.walks[0].stores) needed.push_back(store.value);
    while (!needed.empty()) {
        const auto index = static_cast<std::size_t>(needed.back());
        needed.pop_back();
        if (seen[index]) continue;
        seen[index] = true;
        const Step& step = nest.steps[index];
        if (step.op == "load")
            read[static_cast<std::size_t>(step.operand)] = true;
        else if (step.op == "select" && step.arguments[0] == condition)
            needed.push_back(step.arguments[1]);
        else
            needed.insert(needed.end(), step.arguments.begin(), step.arguments.end());
    }
    return read;
}

LoopNest lower(const Graph& body) {
    const auto must_be = [](Expected<Nest> nest) {
        if (!nest) throw InternalError("the body of a fused node is no nest: " + nest.reason());
        return std::move(*nest);
    };
    if (const auto epilogue = contraction_epilogue(body)) {
        const Graph rest = contract_products(epilogue->graph);
        return Lowering(rest).run(must_be(nest_of_epilogue(rest)), true);
    }
    const Graph contracted = contract_products(body);
    return lower(contracted, must_be(make_nest(contracted, Loops::one_if_possible, Doubles::single)));
}

LoopNest lower(const Graph& contracted, Nest nest) {
    return Lowering(contracted).run(std::move(nest), false);
}

}  // namespace mantissa::codegen
