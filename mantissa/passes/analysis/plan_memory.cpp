#include "mantissa/passes/analysis/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

bool is_view(const Graph& graph, const Node& node) {
    return node.op->view && node.op->view(graph, node, 0).has_value();
}

namespace {

class MemoryPlanner {
  public:
    MemoryPlanner(const Graph& graph, const KernelMemory& kernels)
        : graph_(graph), kernels_(kernels), root_(graph.size()), last_use_(graph.size()) {
        plan_.places.resize(graph.size());
        plan_.workspace.assign(graph.size(), -1);
    }

    MemoryPlan run() {
        place_sources();
        find_roots();
        find_last_uses();
        place_updates();
        write_over_operands();
        collect_allocations();
        allocate();
        place_arena_values();
        check_no_overlap(plan_);
        return std::move(plan_);
    }

  private:
    std::int64_t aligned(std::int64_t bytes) const { return align_up(bytes, kernels_.alignment); }
    NodeId end() const { return graph_.end(); }
    NodeId& last_use(Value value) { return last_use_[value.node][value.output]; }
    Place& place(Value value) { return plan_.places[value.node][value.output]; }
    /// The value whose memory a value lies in.
    Value root(Value value) const { return root_[value.node][value.output]; }

    void place_sources() {
        for (NodeId id = 0; id < end(); ++id) {
            const Node& node = graph_.node(id);
            plan_.places[id].resize(node.outputs.size());
            if (is_constant(node)) {
                place({id, 0}) = {Place::Kind::constant, static_cast<int>(plan_.constants.size()), 0};
                plan_.constants.push_back(id);
                plan_.state_bytes += aligned(node.outputs[0].bytes());
            }
        }
        for (std::size_t i = 0; i < graph_.inputs().size(); ++i)
            place({graph_.inputs()[i], 0}) = {Place::Kind::input, static_cast<int>(i), 0};
        for (std::size_t i = 0; i < graph_.states().size(); ++i) {
            place({graph_.states()[i].node, 0}) = {Place::Kind::state, static_cast<int>(i), 0};
            plan_.state_bytes += aligned(graph_.states()[i].stored_bytes());
        }
    }

    void find_roots() {
        for (NodeId id = 0; id < end(); ++id) {
            const Node& node = graph_.node(id);
            for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
                root_[id].push_back(is_view(graph_, node) ? root(node.inputs[0]) : Value{id, i});
            last_use_[id].assign(node.outputs.size(), id);
        }
    }

    void find_last_uses() {
        for (NodeId id = 0; id < end(); ++id)
            for (const Value& input : graph_.node(id).inputs) {
                NodeId& last = last_use(root(input));
                last = std::max(last, id);
            }
        for (const Result& result : graph_.results()) last_use(root(result.value)) = end();
    }

    /// Whether one operand alone lies in this memory.
    bool reads_once(const Node& node, Value owner) const {
        return std::ranges::count_if(node.inputs, [&](Value input) { return root(input) == owner; }) == 1;
    }

    /// Whether the operation may write this output over the state, its operand; no other operand may be a
    /// part of the state.
    bool may_overwrite(const Node& node, std::int32_t output, Value state) const {
        const int operand =
            node.op->written_over(node.attributes, node.inputs.size(), static_cast<std::size_t>(output));
        return operand >= 0 && node.inputs[operand] == state && reads_once(node, state);
    }

    /// Lets a value that replaces a state be written straight into it, if that is safe. Then nobody reads the
    /// state later, and the operation does not read it either or may write over that operand.
    bool write_in_place(const Update& update) {
        const NodeId maker = update.value.node;
        const Node& node = graph_.node(maker);
        const Value state{graph_.state(update.state).node, 0};
        // A value that replaces several states has its place in the first of them.
        if (is_source(node) || is_view(graph_, node) || place(update.value).kind != Place::Kind::none)
            return false;
        // A state that nobody reads has no last use but its own node, which may stand anywhere.
        if (last_use(state) > maker && last_use(state) != state.node) return false;
        if (last_use(state) == maker && !may_overwrite(node, update.value.output, state)) return false;
        place(update.value) = place(state);
        if (node.op->passes_through) bring_in_place(update.value, state);
        return true;
    }

    /// The value that becomes the state's new value may be on its way there from the start, where nobody
    /// reads the old one meanwhile.
    void bring_in_place(Value arrived, Value state) {
        const Value sent = graph_.node(arrived.node).inputs[arrived.output];
        const bool is_read = last_use(state) >= sent.node && last_use(state) != state.node;
        if (is_read || is_source(graph_.node(sent.node)) || root(sent) != sent ||
            last_use(sent) != arrived.node || place(sent).kind != Place::Kind::none)
            return;
        place(sent) = place(state);
    }

    /// A result is read when the run is over and its states are updated: it cannot be one of them as it was.
    void check_results() const {
        for (const Result& result : graph_.results())
            for (const Update& update : graph_.updates())
                check(root(result.value).node != graph_.state(update.state).node,
                      "a result is a computed value, not a state that the run replaces");
    }

    void place_updates() {
        check_results();
        for (std::size_t i = 0; i < graph_.updates().size(); ++i) {
            const Update& update = graph_.updates()[i];
            if (write_in_place(update)) continue;
            check(graph_.node(root(update.value).node).op->name != "state",
                  "an update is a computed value: copies of states could overtake one another");
            plan_.copied_updates.push_back(static_cast<int>(i));
            last_use(root(update.value)) = end();
        }
    }

    /// Lets outputs lie where an operand lay that nobody reads later, as views of it.
    void write_over_operands() {
        for (NodeId id = 0; id < end(); ++id) {
            const Node& node = graph_.node(id);
            if (is_view(graph_, node)) {
                for (Value& of_output : root_[id]) of_output = root(node.inputs[0]);
            } else if (kernels_.may_write_over && !is_source(node)) {
                write_over_operands(id, kernels_.may_write_over(id));
            }
        }
    }

    void write_over_operands(NodeId id, const std::vector<std::vector<int>>& operands) {
        const Node& node = graph_.node(id);
        std::vector<Value> taken;
        for (std::size_t i = 0; i < operands.size(); ++i) {
            const Value output{id, static_cast<std::int32_t>(i)};
            if (place(output).kind != Place::Kind::none) continue;
            for (int operand : operands[i]) {
                const Value input = node.inputs[operand], owner = root(input);
                if (!dies(node, id, input) || graph_.type(input).bytes() != node.outputs[i].bytes() ||
                    std::find(taken.begin(), taken.end(), owner) != taken.end())
                    continue;
                taken.push_back(owner);
                last_use(owner) = std::max(id, last_use(output));
                root_[id][i] = owner;
                break;
            }
        }
    }

    /// Whether an operand is all of a value of the arena, or its beginning, that no other operand is part of
    /// and that nobody reads after the node.
    bool dies(const Node& node, NodeId id, Value input) {
        const Value owner = root(input);
        return place(owner).kind == Place::Kind::none && last_use(owner) == id &&
               offset_in_root(input) == 0 && reads_once(node, owner);
    }

    /// Bytes from the start of the operand to an output of a view.
    std::int64_t view_offset(Value value) const {
        const Node& node = graph_.node(value.node);
        return *node.op->view(graph_, node, value.output);
    }

    /// Bytes. A value written over an operand lies where that operand begins.
    std::int64_t offset_in_root(Value value) const {
        const Node& node = graph_.node(value.node);
        if (!is_view(graph_, node)) return 0;
        return offset_in_root(node.inputs[0]) + view_offset(value);
    }

    void collect_allocations() {
        for (NodeId id = 0; id < end(); ++id) {
            const Node& node = graph_.node(id);
            if (is_source(node) || is_view(graph_, node)) continue;
            for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i)
                if (place({id, i}).kind == Place::Kind::none && root({id, i}) == Value{id, i} &&
                    node.outputs[i].bytes() > 0)
                    plan_.allocations.push_back(
                        {{id, i}, aligned(node.outputs[i].bytes()), id, last_use({id, i})});
            if (const std::int64_t bytes = kernels_.workspace ? kernels_.workspace(id) : 0; bytes > 0)
                plan_.allocations.push_back({{id, -1}, aligned(bytes), id, id});
        }
    }

    /// The lowest offset at which `wanted` fits among the given allocations that live when it does,
    /// preferring the tightest gap. `given` is sorted by offset.
    static std::int64_t best_fit(const std::vector<const Allocation*>& given, const Allocation& wanted) {
        std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), free_from = 0;
        for (const Allocation* other : given) {
            if (other->last < wanted.first || wanted.last < other->first) continue;
            const std::int64_t gap = other->offset - free_from;
            if (gap >= wanted.bytes && gap < best_gap) {
                best = free_from;
                best_gap = gap;
            }
            free_from = std::max(free_from, other->offset + other->bytes);
        }
        return best >= 0 ? best : free_from;
    }

    /// Gives offsets in the order asked for; returns the bytes that it takes.
    std::int64_t allocate_in(const std::vector<std::size_t>& order, std::vector<std::int64_t>& offsets) {
        std::vector<Allocation> work = plan_.allocations;
        std::vector<const Allocation*> given;
        std::int64_t total = 0;
        for (std::size_t i : order) {
            work[i].offset = best_fit(given, work[i]);
            total = std::max(total, work[i].offset + work[i].bytes);
            const auto by_offset = [](const Allocation* a, const Allocation* b) {
                return a->offset < b->offset;
            };
            given.insert(std::upper_bound(given.begin(), given.end(), &work[i], by_offset), &work[i]);
        }
        offsets.clear();
        for (const Allocation& allocation : work) offsets.push_back(allocation.offset);
        return total;
    }

    /// Largest first (Pisarchyk, Lee, "Efficient memory management for deep neural net inference", 2020), and
    /// longest-lived first, which suits a training step better, where activations nest; the smaller result is
    /// taken.
    void allocate() {
        std::vector<std::size_t> order(plan_.allocations.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto& all = plan_.allocations;
        const auto by_size = [&](std::size_t a, std::size_t b) { return all[a].bytes > all[b].bytes; };
        const auto by_life = [&](std::size_t a, std::size_t b) {
            return all[a].last - all[a].first > all[b].last - all[b].first;
        };
        std::vector<std::int64_t> offsets, other;
        std::stable_sort(order.begin(), order.end(), by_size);
        plan_.arena_bytes = allocate_in(order, offsets);
        std::stable_sort(order.begin(), order.end(), by_life);
        if (const std::int64_t bytes = allocate_in(order, other); bytes < plan_.arena_bytes) {
            plan_.arena_bytes = bytes;
            offsets = other;
        }
        for (std::size_t i = 0; i < offsets.size(); ++i) plan_.allocations[i].offset = offsets[i];
    }

    void place_arena_values() {
        for (const Allocation& allocation : plan_.allocations) {
            if (allocation.value.output < 0)
                plan_.workspace[allocation.value.node] = allocation.offset;
            else
                place(allocation.value) = {Place::Kind::arena, -1, allocation.offset};
        }
        for (NodeId id = 0; id < end(); ++id) {
            const Node& node = graph_.node(id);
            const bool view = is_view(graph_, node);
            for (std::int32_t i = 0; i < static_cast<std::int32_t>(node.outputs.size()); ++i) {
                if (view) {
                    place({id, i}) = place(node.inputs[0]);
                    place({id, i}).offset += view_offset({id, i});
                } else if (root({id, i}) != Value{id, i}) {
                    place({id, i}) = place(root({id, i}));
                }
            }
        }
    }

    const Graph& graph_;
    const KernelMemory& kernels_;
    MemoryPlan plan_;
    std::vector<std::vector<Value>> root_;  // by node and output
    std::vector<std::vector<NodeId>>
        last_use_;  // by node and output, for roots; the node's own id if never read
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const KernelMemory& kernels) {
    return MemoryPlanner(graph, kernels).run();
}

void check_no_overlap(const MemoryPlan& plan) {
    for (std::size_t i = 0; i < plan.allocations.size(); ++i) {
        const Allocation& a = plan.allocations[i];
        if (a.offset < 0 || a.offset + a.bytes > plan.arena_bytes)
            throw InternalError(
                fmt::format("memory plan: %{}.{} lies outside the arena", a.value.node, a.value.output));
        for (std::size_t j = 0; j < i; ++j) {
            const Allocation& b = plan.allocations[j];
            const bool one_time = a.first <= b.last && b.first <= a.last;
            const bool one_place = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
            if (one_time && one_place)
                throw InternalError(fmt::format("memory plan: %{}.{} and %{}.{} share memory while both live",
                                                a.value.node, a.value.output, b.value.node, b.value.output));
        }
    }
}

}  // namespace mantissa
