#include "mantissa/passes/analysis/example_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::inline v0 {

namespace {

/// How a value follows from the examples. A value of no example may change along some axes, a bit each.
struct Share {
    int axis = -1;  ///< of the examples; -1: it follows from none
    std::uint64_t varies = 0;
};

std::uint64_t bit(int axis) { return std::uint64_t{1} << axis; }

std::uint64_t all_axes(const Shape& shape) {
    std::uint64_t axes = 0;
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] > 1) axes |= bit(axis);
    return axes;
}

class Examples {
  public:
    Examples(const Graph& graph, std::span<const std::string> batched, std::int64_t examples)
        : graph_(graph), batched_(batched), examples_(examples), shares_(graph.size()) {}

    std::string why_mixed(Value result) {
        for (NodeId id = 0; id < graph_.end(); ++id) {
            const Node& node = graph_.node(id);
            const std::optional<Share> share = of(node);
            if (!share) return fmt::format("{} may mix the examples of a batch", node.op->name);
            shares_[static_cast<std::size_t>(id)] = *share;
        }
        const Share& share = shares_[static_cast<std::size_t>(result.node)];
        return share.axis == 0 ? "" : "the result has no example in front";
    }

  private:
    const Share& at(Value value) const { return shares_[static_cast<std::size_t>(value.node)]; }
    const Shape& shape(Value value) const { return graph_.type(value).shape; }

    bool has_examples(const Node& node) const {
        return std::ranges::any_of(node.inputs, [&](Value input) { return at(input).axis >= 0; });
    }

    std::optional<Share> of(const Node& node) const {
        const std::string_view op = node.op->name;
        const Shape& made = node.outputs[0].shape;
        if (op == "input") {
            const bool is_batched =
                std::ranges::find(batched_, node.attributes.word("name")) != batched_.end();
            return is_batched ? Share{.axis = 0} : Share{.varies = all_axes(made)};
        }
        if (op == "constant") return Share{};
        if (op == "iota") return Share{.varies = bit(static_cast<int>(node.attributes.integer("axis")))};
        if (node.op->fuser == FuserClass::elementwise || op == "broadcast") return of_aligned(node);
        if (op == "reshape") return of_reshape(node);
        if (op == "transpose") return of_transpose(node);
        if (op == "slice" || op == "pad" || op == "split" || op == "concat") return of_parts(node);
        if (op == "sum" || op == "max") return of_reduction(node);
        if (op == "embedding") return of_embedding(node);
        if (!has_examples(node)) return Share{.varies = all_axes(made)};
        if (op == "matmul") return of_product(node);
        const Share& first = at(node.inputs[0]);
        const bool is_first_alone = std::ranges::none_of(std::span(node.inputs).subspan(1),
                                                         [&](Value input) { return at(input).axis >= 0; });
        if (!is_first_alone) return std::nullopt;
        if (op == "cumsum" || op == "argsort")
            return first.axis == made.rank() - 1 ? std::nullopt : std::optional(first);
        for (const std::string_view windows :
             {"conv2d", "conv2d_input_gradient", "max_pool2d", "average_pool2d", "adaptive_average_pool2d"})
            if (op == windows && first.axis == 0) return first;
        return std::nullopt;
    }

    /// Operands whose last axes stand above one another.
    std::optional<Share> of_aligned(const Node& node) const {
        const Shape& made = node.outputs[0].shape;
        Share share;
        for (const Value input : node.inputs) {
            const int before = made.rank() - shape(input).rank();
            const Share& other = at(input);
            share.varies |= other.varies << before;
            if (other.axis < 0) continue;
            const int axis = other.axis + before;
            if (share.axis >= 0 && share.axis != axis) return std::nullopt;
            if (shape(input)[other.axis] != made[axis]) return std::nullopt;
            share.axis = axis;
        }
        if (share.axis < 0) return share;
        if (share.varies & bit(share.axis)) return std::nullopt;  // by the place of an example
        return Share{.axis = share.axis};
    }

    std::optional<Share> of_reshape(const Node& node) const {
        const Shape &from = shape(node.inputs[0]), &to = node.outputs[0].shape;
        const Share& share = at(node.inputs[0]);
        if (share.axis < 0) {
            if (share.varies == 0) return share;
            std::uint64_t varies = all_axes(to);
            for (int axis = 0; axis < std::min(from.rank(), to.rank()) && from[axis] == to[axis]; ++axis)
                if (!(share.varies & bit(axis))) varies &= ~bit(axis);
            return Share{.varies = varies};
        }
        std::int64_t before = 1, front = 1;
        for (int axis = 0; axis < share.axis; ++axis) before *= from[axis];
        for (int axis = 0; axis < to.rank() && front <= before; ++axis) {
            if (front == before && to[axis] != 1)
                return to[axis] % examples_ == 0 ? std::optional(Share{.axis = axis}) : std::nullopt;
            front *= to[axis];
        }
        return std::nullopt;
    }

    std::optional<Share> of_transpose(const Node& node) const {
        const Share& share = at(node.inputs[0]);
        const auto& order = node.attributes.list("order");
        Share moved;
        for (int axis = 0; axis < static_cast<int>(order.size()); ++axis) {
            const int from = static_cast<int>(order[static_cast<std::size_t>(axis)]);
            if (from == share.axis) moved.axis = axis;
            if (share.varies & bit(from)) moved.varies |= bit(axis);
        }
        return moved;
    }

    /// Parts along an axis other than the examples'.
    std::optional<Share> of_parts(const Node& node) const {
        const int axis = static_cast<int>(node.attributes.integer("axis"));
        Share share;
        for (const Value input : node.inputs) {
            const Share& other = at(input);
            share.varies |= other.varies;
            if (other.axis < 0) continue;
            if (other.axis == axis || (share.axis >= 0 && share.axis != other.axis)) return std::nullopt;
            share.axis = other.axis;
        }
        if (share.axis < 0) return Share{.varies = share.varies | bit(axis)};
        if (share.varies & bit(share.axis)) return std::nullopt;
        return Share{.axis = share.axis};
    }

    std::optional<Share> of_reduction(const Node& node) const {
        const auto& axes = node.attributes.list("axes");
        const bool keeps = node.attributes.flag("keep");
        const Share& share = at(node.inputs[0]);
        Share left;
        int place = 0;
        for (int axis = 0; axis < shape(node.inputs[0]).rank(); ++axis) {
            const bool is_reduced = std::ranges::find(axes, axis) != axes.end();
            if (is_reduced && share.axis == axis) return std::nullopt;
            if (!is_reduced && share.axis == axis) left.axis = place;
            if (!is_reduced && (share.varies & bit(axis))) left.varies |= bit(place);
            if (!is_reduced || keeps) ++place;
        }
        return left;
    }

    std::optional<Share> of_embedding(const Node& node) const {
        const Share &table = at(node.inputs[0]), &ids = at(node.inputs[1]);
        if (table.axis >= 0) return std::nullopt;
        if (ids.axis >= 0) return ids;
        return Share{.varies = ids.varies | bit(node.outputs[0].shape.rank() - 1)};
    }

    /// Examples are rows of one side, or stand before the matrices of both.
    std::optional<Share> of_product(const Node& node) const {
        const int rank = node.outputs[0].shape.rank();
        int axis = -1;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const Share& share = at(node.inputs[i]);
            if (share.axis < 0) continue;
            int here = share.axis + rank - shape(node.inputs[i]).rank();
            if (i < 2 && here >= rank - 2) {
                const bool is_turned = node.attributes.flag(i == 0 ? "transpose_a" : "transpose_b");
                const int summed = (i == 0) != is_turned ? rank - 1 : rank - 2;
                if (here == summed) return std::nullopt;
                here = i == 0 ? rank - 2 : rank - 1;
            }
            if (axis >= 0 && axis != here) return std::nullopt;
            axis = here;
        }
        const int row_of[] = {rank - 2, rank - 1};
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const Share& share = at(node.inputs[i]);
            const int before = rank - shape(node.inputs[i]).rank();
            if (share.axis >= 0) {
                // Rows that are examples meet no other side that has some.
                if (axis >= rank - 2 && i < 2 && at(node.inputs[1 - i]).axis >= 0) return std::nullopt;
                continue;
            }
            const bool is_other_side = i < 2 && axis >= rank - 2 && axis != row_of[i];
            if (!is_other_side && axis >= before && (share.varies & bit(axis - before))) return std::nullopt;
        }
        return Share{.axis = axis};
    }

    const Graph& graph_;
    std::span<const std::string> batched_;
    std::int64_t examples_;
    std::vector<Share> shares_;  // by node
};

}  // namespace

std::string why_examples_mix(Tensor result, std::span<const std::string> batched, std::int64_t examples) {
    check(examples >= 2, "one example tells nothing of others");
    Graph whole = result.graph();
    whole.take_results();
    whole.add_result("examples", result.value());
    const Graph plain = simplify(expand(whole, [](const Graph&, const Node&) { return true; }));
    return Examples(plain, batched, examples).why_mixed(plain.results()[0].value);
}

}  // namespace mantissa
