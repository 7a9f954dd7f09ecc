#include "mantissa/passes/distribute.h"

#include <algorithm>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/passes/plan_memory.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

bool is_source(const Node& node) {
    return node.op->name == "input" || node.op->name == "state" || node.op->name == "constant";
}

/// By node: whether it is a beginning, or does nothing but prepare one.
std::vector<bool> moved_with_beginnings(const Graph& graph) {
    std::vector<bool> moved(graph.size());
    for (auto id = static_cast<NodeId>(graph.size()); id-- > 0;) {
        const Node& node = graph.node(id);
        if (node.op->name == "all_reduce_start") moved[static_cast<std::size_t>(id)] = true;
        if (!moved[static_cast<std::size_t>(id)]) continue;
        for (const Value& input : node.inputs) {
            const Node& operand = graph.node(input.node);
            if (operand.op->name == "tree_add" || is_view(graph, operand))
                moved[static_cast<std::size_t>(input.node)] = true;
        }
    }
    return moved;
}

/// Copies nodes, and behind each those that are moved and waited for it alone.
class EarlyOrder {
  public:
    explicit EarlyOrder(const Graph& graph) : graph_(graph), rewriter_(graph) {
        const std::vector<bool> moved = moved_with_beginnings(graph);
        for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
            if (is_source(graph.node(id))) rewriter_.copy(id);
        for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id)
            if (moved[static_cast<std::size_t>(id)]) waiting_.push_back(id);
        copy_what_may();
        for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
            if (moved[static_cast<std::size_t>(id)] || is_source(graph.node(id))) continue;
            rewriter_.copy(id);
            copy_what_may();
        }
        check(waiting_.empty(), "what begins a sum follows from the nodes before it");
    }
    Graph finish() { return rewriter_.finish(); }

  private:
    bool may_be_copied(NodeId id) const {
        return std::ranges::all_of(graph_.node(id).inputs,
                                   [&](const Value& input) { return rewriter_.placed(input); });
    }

    /// In the order of nodes: one that is copied may let another, behind it.
    void copy_what_may() {
        std::erase_if(waiting_, [&](NodeId id) {
            if (!may_be_copied(id)) return false;
            rewriter_.copy(id);
            return true;
        });
    }

    const Graph& graph_;
    Rewriter rewriter_;
    std::vector<NodeId> waiting_;
};

}  // namespace

std::vector<Tensor> all_reduced(Graph& graph, std::span<const ReducedTerm> terms,
                                const Distribution& distribution) {
    std::vector<Tensor> sums;
    for (const ReducedTerm& each : terms) sums.push_back(each.term);
    if (distribution.ranks == 1) return sums;
    std::vector<std::size_t> order(terms.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return terms[i].made; });
    const OriginScope scope(graph, Origin{.scope = "", .stage = Stage::backward});
    std::vector<std::vector<std::size_t>> buckets;
    std::int64_t bytes = distribution.bucket_bytes;
    for (std::size_t i : order) {
        if (bytes >= distribution.bucket_bytes) {
            buckets.emplace_back();
            bytes = 0;
        }
        buckets.back().push_back(i);
        bytes += graph.type(terms[i].term.value()).bytes();
    }
    std::vector<std::vector<Tensor>> begun;
    const auto attributes = [&](std::size_t sum) {
        return Attributes{{"ranks", std::int64_t{distribution.ranks}},
                          {"sum", static_cast<std::int64_t>(sum)}};
    };
    for (std::size_t sum = 0; sum < buckets.size(); ++sum) {
        std::vector<Tensor> operands;
        for (std::size_t i : buckets[sum]) operands.push_back(terms[i].term);
        begun.push_back(call(graph, "all_reduce_start", operands, attributes(sum)));
    }
    for (std::size_t sum = 0; sum < buckets.size(); ++sum) {
        const std::vector<Tensor> ended = call(graph, "all_reduce_wait", begun[sum], attributes(sum));
        for (std::size_t i = 0; i < ended.size(); ++i) sums[buckets[sum][i]] = ended[i];
    }
    return sums;
}

Graph distribute(const Graph& graph) { return EarlyOrder(graph).finish(); }

}  // namespace mantissa
