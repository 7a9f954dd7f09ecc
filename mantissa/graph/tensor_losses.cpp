// Cross-entropy with the options of recipes: weights of classes, smoothed labels, ignored rows, losses by
// row. Each is arithmetic on numbers of rows, so that the logits stay inside of the one operation that reads
// them.
#include <fmt/format.h>

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

std::vector<std::int64_t> without_last(const Tensor& x) {
    std::vector<std::int64_t> extents = x.shape().extents();
    extents.pop_back();
    return extents;
}

/// The sum of each row's logits, each times its class's weight. Logits x w^T need not be there: their
/// sum is x times the sum of w over classes.
Tensor sum_of_logits(const Tensor& logits, const Tensor& class_weights) {
    const std::int64_t V = logits.dim(-1);
    const auto weighted = [&](const Tensor& of, const Shape& shape) {
        return class_weights ? cast(of, DType::f32) * reshape(class_weights, shape) : cast(of, DType::f32);
    };
    const LogitsProduct product = product_of(logits);
    if (!product.x) return sum(weighted(logits, {V}), {-1});
    const Tensor all = sum(weighted(product.w, {V, 1}), {0});
    return reshape(sum(cast(product.x, DType::f32) * all, {-1}), Shape(without_last(logits)));
}

/// The weight of a row; empty: 1.
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

/// The sum of each row's logits, each times its target [..., V] and its class's weight. Where the logits
/// are x w^T that is x times the sum of targets times w: a product of the targets, and none of the logits.
Tensor targeted_logits(const Tensor& logits, const Tensor& targets, const Tensor& class_weights) {
    const LogitsProduct product = product_of(logits);
    const std::int64_t V = logits.dim(-1);
    if (!product.x) {
        const Tensor meant = class_weights ? targets * class_weights : targets;
        return sum(cast(logits, DType::f32) * meant, {-1});
    }
    const std::int64_t C = product.w.dim(1), rows = V == 0 ? 0 : logits.shape().elements() / V;
    const Tensor w = class_weights ? cast(product.w, DType::f32) * reshape(class_weights, {V, 1}) : product.w;
    const Tensor meant = matmul(cast(reshape(targets, {rows, V}), w.dtype()), w, {.output = DType::f32});
    const Tensor x = cast(reshape(product.x, {rows, C}), DType::f32);
    return reshape(sum(x * meant, {-1}), Shape(without_last(logits)));
}

void check_options(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
    const Graph& graph = logits.graph();
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        refuse("cross_entropy", graph.origin,
               fmt::format("label_smoothing must be from 0 to 1, got {}", options.label_smoothing));
    const bool soft = is_floating(targets.dtype());
    if (!soft && targets.dtype() != DType::i32)
        refuse("cross_entropy", graph.origin,
               fmt::format("targets must be i32, or the parts of classes, got {}", targets.type().text()));
    if (soft && targets.shape() != logits.shape())
        refuse("cross_entropy", graph.origin,
               fmt::format("targets that are parts of classes must have the shape of the logits {}, got {}",
                           logits.shape().text(), targets.type().text()));
    if (soft && options.ignore_index)
        refuse("cross_entropy", graph.origin, "targets that are parts of classes have no index to ignore");
    if (logits.rank() == 0) return;  // refused by the type rule
    const Type wanted{DType::f32, {logits.dim(-1)}};
    if (options.class_weights && options.class_weights.type() != wanted)
        refuse("cross_entropy", graph.origin,
               fmt::format("class_weights must be {}, got {}", wanted.text(),
                           options.class_weights.type().text()));
}

/// Targets [..., V] give each class its share of a row. The loss of target 0 gives the row's log-sum-exp
/// besides.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& given, const CrossEntropyOptions& options) {
    const double V = static_cast<double>(logits.dim(-1)), part = options.label_smoothing;
    const Tensor targets = cast(given, DType::f32);
    const Tensor weights = options.class_weights ? stop_gradient(options.class_weights) : Tensor{};
    const Tensor first = constant(logits.graph(), 0, DType::i32, Shape(without_last(logits)));
    const Tensor log_sum_exp =
        call(logits.graph(), "cross_entropy", std::vector{logits, first}, {{"rows", true}})[1];
    const Tensor total = sum(weights ? targets * weights : targets, {-1});
    Tensor losses = total * log_sum_exp - targeted_logits(logits, targets, weights);
    if (part > 0) {
        const Tensor all = weights ? log_sum_exp * sum(weights) : log_sum_exp * V;
        losses = losses * (1 - part) + (all - sum_of_logits(logits, weights)) * (part / V);
    }
    return reduced(losses, {}, options.reduction);
}

}  // namespace

Tensor cross_entropy(Tensor logits, Tensor targets, const CrossEntropyOptions& options, Where at) {
    Graph& graph = logits.graph();
    const LineScope line(graph, at);
    check_options(logits, targets, options);
    if (is_floating(targets.dtype())) return soft_cross_entropy(logits, targets, options);
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
