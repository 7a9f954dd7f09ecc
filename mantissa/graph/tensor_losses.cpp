// Cross-entropy with what recipes add to it: weights of classes, smoothed labels, ignored rows, losses by
// row. Each is arithmetic on numbers of rows, so that the logits stay inside of the one operation that reads
// them.
#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0::ops {

namespace {

Tensor f32_number(Graph& graph, double value) { return constant(graph, value, DType::f32); }

/// The product of x [..., C] and weights [V, C] that made the logits, if one did and nothing was added to it.
struct LogitsProduct {
    Tensor x, w;
};

LogitsProduct product_of(const Tensor& logits) {
    Graph& graph = logits.graph();
    Value made = logits.value();
    while (graph.node(made.node).op->name == "reshape" || graph.node(made.node).op->name == "cast")
        made = graph.node(made.node).inputs[0];
    const Node& node = graph.node(made.node);
    if (node.op->name != "matmul" || node.inputs.size() != 2 || node.attributes.flag("transpose_a") ||
        !node.attributes.flag("transpose_b") || graph.type(node.inputs[1]).shape.rank() != 2)
        return {};
    return {Tensor(graph, node.inputs[0]), Tensor(graph, node.inputs[1])};
}

/// Of each row the sum of its logits, each times its class's weight. Logits x w^T need not be there: their
/// sum is x times the sum of w over classes.
Tensor sum_of_logits(const Tensor& logits, const Tensor& class_weights) {
    const std::int64_t V = logits.dim(-1);
    std::vector<std::int64_t> rows = logits.shape().extents();
    rows.pop_back();
    const auto weighted = [&](const Tensor& of, const Shape& shape) {
        return class_weights ? cast(of, DType::f32) * reshape(class_weights, shape) : cast(of, DType::f32);
    };
    const LogitsProduct product = product_of(logits);
    if (!product.x) return sum(weighted(logits, {V}), {-1});
    const Tensor all = sum(weighted(product.w, {V, 1}), {0});
    return reshape(sum(cast(product.x, DType::f32) * all, {-1}), Shape(rows));
}

/// What a row counts: empty, 1.
Tensor counts_of_rows(const Tensor& targets, const Tensor& kept, const Tensor& class_weights) {
    if (!class_weights) return kept ? cast(kept, DType::f32) : Tensor{};
    Graph& graph = targets.graph();
    const Tensor zero = constant(graph, 0, DType::i32);
    const Tensor ids = kept ? select(kept, targets, zero) : targets;
    const Tensor weights =
        reshape(embedding(reshape(class_weights, {class_weights.dim(0), 1}), ids), targets.shape());
    return kept ? select(kept, weights, f32_number(graph, 0)) : weights;
}

Tensor reduced(const Tensor& losses, const Tensor& counts, Reduction reduction) {
    if (reduction == Reduction::none) return losses;
    if (reduction == Reduction::sum) return sum(losses);
    if (!counts) return mean(losses);
    Graph& graph = losses.graph();
    const Tensor total = sum(counts);
    return sum(losses) / select(equal(total, f32_number(graph, 0)), f32_number(graph, 1), total);
}

void check_options(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
    const Graph& graph = logits.graph();
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        refuse("cross_entropy", graph.origin,
               fmt::format("label_smoothing must be from 0 to 1, got {}", options.label_smoothing));
    if (targets.dtype() != DType::i32)
        refuse("cross_entropy", graph.origin,
               fmt::format("targets must be i32, got {}", targets.type().text()));
    if (logits.rank() == 0) return;  // refused by the type rule
    const Type wanted{DType::f32, {logits.dim(-1)}};
    if (options.class_weights && options.class_weights.type() != wanted)
        refuse("cross_entropy", graph.origin,
               fmt::format("class_weights must be {}, got {}", wanted.text(),
                           options.class_weights.type().text()));
}

}  // namespace

Tensor cross_entropy(Tensor logits, Tensor targets, const CrossEntropyOptions& options, Tensor::Where at) {
    Graph& graph = logits.graph();
    const LineScope line(graph, at);
    check_options(logits, targets, options);
    Tensor kept, ids = targets;
    if (options.ignore_index) {
        const auto id = static_cast<double>(*options.ignore_index);
        kept = logical_not(equal(targets, constant(graph, id, DType::i32)));
        ids = select(kept, targets, constant(graph, -1, DType::i32));
    }
    const Tensor class_weights = options.class_weights ? stop_gradient(options.class_weights) : Tensor{};
    if (!class_weights && options.label_smoothing == 0 && options.reduction == Reduction::mean)
        return kept ? counted_cross_entropy(logits, ids) : cross_entropy(logits, targets);
    Attributes attributes{{"rows", true}};
    if (kept) attributes = attributes.with("ignore_negative", true);
    const std::vector<Tensor> of_rows =
        call(graph, "cross_entropy", std::vector{logits, ids}, std::move(attributes));
    const Tensor counts = counts_of_rows(targets, kept, class_weights);
    Tensor losses = class_weights ? of_rows[0] * counts : of_rows[0];
    if (const double part = options.label_smoothing; part > 0) {
        const auto V = static_cast<double>(logits.dim(-1));
        const Tensor all = class_weights ? of_rows[1] * sum(class_weights) : of_rows[1] * V;
        Tensor even = all - sum_of_logits(logits, class_weights);
        if (kept) even = select(kept, even, f32_number(graph, 0));
        losses = losses * (1 - part) + even * (part / V);
    }
    return reduced(losses, counts, options.reduction);
}

}  // namespace mantissa::ops
