#include "mantissa/passes/distribute.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/passes/analysis/plan_memory.h"
#include "mantissa/passes/rewriter.h"

namespace mantissa::inline v0 {

namespace {

bool is_beginning(const Node& node) {
    return node.op->name == "all_reduce_start" || node.op->name == "reduce_scatter_start" ||
           node.op->name == "all_gather_start" || node.op->name == "all_gather_rows_start";
}

/// By node: whether it is a beginning, or does nothing but prepare one.
std::vector<bool> moved_with_beginnings(const Graph& graph) {
    std::vector<bool> moved(graph.size());
    for (auto id = graph.end(); id-- > 0;) {
        const Node& node = graph.node(id);
        if (is_beginning(node)) moved[id] = true;
        if (!moved[id]) continue;
        for (const Value& input : node.inputs) {
            const Node& operand = graph.node(input.node);
            if (operand.op->name == "tree_add" || operand.op->name == "concat" || is_view(graph, operand))
                moved[input.node] = true;
        }
    }
    return moved;
}

/// Copies nodes, and behind each the moved nodes that waited for it alone.
class EarlyOrder {
  public:
    explicit EarlyOrder(const Graph& graph) : graph_(graph), rewriter_(graph) {
        const std::vector<bool> moved = moved_with_beginnings(graph);
        for (NodeId id = 0; id < graph.end(); ++id)
            if (is_source(graph.node(id))) rewriter_.copy(id);
        for (NodeId id = 0; id < graph.end(); ++id)
            if (moved[id]) waiting_.push_back(id);
        copy_what_may();
        for (NodeId id = 0; id < graph.end(); ++id) {
            if (moved[id] || is_source(graph.node(id))) continue;
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

    /// Copies waiting nodes that may stand now, in their order: a copy may let another follow, behind it.
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

/// Indices in the order given, a bucket after another.
std::vector<std::vector<std::size_t>> buckets_of(const Graph& graph, std::span<const std::size_t> order,
                                                 std::span<const Tensor> tensors, std::int64_t bucket_bytes) {
    std::vector<std::vector<std::size_t>> buckets;
    std::int64_t bytes = bucket_bytes;
    for (std::size_t i : order) {
        if (bytes >= bucket_bytes) {
            buckets.emplace_back();
            bytes = 0;
        }
        buckets.back().push_back(i);
        bytes += graph.type(tensors[i].value()).bytes();
    }
    return buckets;
}

std::vector<Tensor> chosen(std::span<const Tensor> tensors, std::span<const std::size_t> which) {
    std::vector<Tensor> all;
    for (std::size_t i : which) all.push_back(tensors[i]);
    return all;
}

/// A number that no exchange of the graph has.
std::int64_t next_number(const Graph& graph) {
    std::int64_t next = 0;
    for (NodeId id = 0; id < graph.end(); ++id)
        if (is_beginning(graph.node(id))) next = std::max(next, graph.node(id).attributes.integer("sum") + 1);
    return next;
}

/// Begins a kind of exchange of each bucket of the tensors, then awaits them all: the names of both
/// operations, and the attributes of a bucket's beginning.
struct ExchangeKind {
    std::string start, wait;
    std::function<Attributes(std::span<const std::size_t> bucket, Attributes)> attributes =
        [](std::span<const std::size_t>, Attributes all) { return all; };
};

std::vector<Tensor> exchanged(Graph& graph, std::span<const Tensor> tensors,
                              std::span<const std::size_t> order, const Distribution& distribution,
                              const ExchangeKind& kind) {
    const auto buckets = buckets_of(graph, order, tensors, distribution.bucket_bytes);
    const std::int64_t first = next_number(graph);
    const auto attributes = [&](std::size_t bucket) {
        return Attributes{{"ranks", std::int64_t{distribution.ranks}},
                          {"sum", first + static_cast<std::int64_t>(bucket)}};
    };
    std::vector<std::vector<Tensor>> begun;
    for (std::size_t i = 0; i < buckets.size(); ++i)
        begun.push_back(
            call(graph, kind.start, chosen(tensors, buckets[i]), kind.attributes(buckets[i], attributes(i))));
    std::vector<Tensor> results(tensors.size());
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        const std::vector<Tensor> ended = call(graph, kind.wait, begun[i], attributes(i));
        for (std::size_t j = 0; j < ended.size(); ++j) results[buckets[i][j]] = ended[j];
    }
    return results;
}

/// Sums the terms in the order in which the backward pass finishes them.
std::vector<Tensor> summed(Graph& graph, std::span<const ReducedTerm> terms, const Distribution& distribution,
                           const std::string& name) {
    std::vector<std::size_t> order(terms.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return terms[i].made; });
    std::vector<Tensor> tensors;
    for (const ReducedTerm& each : terms) tensors.push_back(each.term);
    ExchangeKind kind{.start = name + "_start", .wait = name + "_wait"};
    if (distribution.wire == Wire::bf16)
        kind.attributes = [](std::span<const std::size_t>, const Attributes& all) {
            return all.with("wire", DType::bf16);
        };
    const OriginScope scope(graph, Origin{.scope = "", .stage = Stage::backward});
    return exchanged(graph, tensors, order, distribution, kind);
}

}  // namespace

std::vector<Tensor> all_reduced(Graph& graph, std::span<const ReducedTerm> terms,
                                const Distribution& distribution) {
    if (distribution.ranks > 1) return summed(graph, terms, distribution, "all_reduce");
    std::vector<Tensor> sums;
    for (const ReducedTerm& each : terms) sums.push_back(each.term);
    return sums;
}

std::vector<Tensor> reduce_scattered(Graph& graph, std::span<const ReducedTerm> terms,
                                     const Distribution& distribution) {
    return summed(graph, terms, distribution, "reduce_scatter");
}

std::vector<Tensor> all_gathered(Graph& graph, std::span<const Tensor> parts, std::span<const Shape> shapes,
                                 const Distribution& distribution) {
    const auto with_shapes = [&](std::span<const std::size_t> bucket, Attributes attributes) {
        std::vector<std::int64_t> all;
        for (std::size_t i : bucket) {
            all.push_back(shapes[i].rank());
            all.insert(all.end(), shapes[i].extents().begin(), shapes[i].extents().end());
        }
        return attributes.with("shapes", std::move(all));
    };
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // A bucket of parts has the size of a bucket of whole tensors, by rank.
    Distribution of_parts = distribution;
    of_parts.bucket_bytes = distribution.bucket_bytes / distribution.ranks;
    return exchanged(graph, parts, order, of_parts,
                     {.start = "all_gather_start", .wait = "all_gather_wait", .attributes = with_shapes});
}

std::vector<Tensor> all_gathered_rows(Graph& graph, std::span<const Tensor> tensors,
                                      const Distribution& distribution) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return exchanged(graph, tensors, order, distribution,
                     {.start = "all_gather_rows_start", .wait = "all_gather_wait"});
}

Graph distribute(const Graph& graph) { return EarlyOrder(graph).finish(); }

}  // namespace mantissa
