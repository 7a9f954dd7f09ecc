#include "mantissa/nn/losses.h"

#include <fmt/format.h>

#include <string_view>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::nn {

namespace {

void expect_one_shape(std::string_view loss, const Tensor& prediction, const Tensor& target, Where at) {
    if (prediction.shape() == target.shape()) return;
    throw UserError(
        fmt::format("{} at {}:{}: the prediction is {}, the target {}; expected one shape, reshape one "
                    "of them",
                    loss, at.file_name(), at.line(), prediction.type().text(), target.type().text()));
}

}  // namespace

Tensor mse_loss(Tensor prediction, Tensor target, Where at) {
    expect_one_shape("mse_loss", prediction, target, at);
    const Tensor error = Operand(prediction, at) - target;
    return mean(Operand(error, at) * error, at);
}

Tensor l1_loss(Tensor prediction, Tensor target, Where at) {
    expect_one_shape("l1_loss", prediction, target, at);
    return mean(abs(Operand(prediction, at) - target, at), at);
}

Tensor huber_loss(Tensor prediction, Tensor target, double delta, Where at) {
    expect_one_shape("huber_loss", prediction, target, at);
    if (!(delta > 0))
        throw UserError(fmt::format("huber_loss at {}:{}: delta must be above 0, got {}", at.file_name(),
                                    at.line(), delta));
    const Tensor error = abs(Operand(prediction, at) - target, at);
    const Tensor inner = minimum(error, delta, at);
    return mean(Operand(inner, at) * (Operand(error, at) - Operand(inner, at) * 0.5), at);
}

Tensor binary_cross_entropy(Tensor logits, Tensor targets, Where at) {
    expect_one_shape("binary_cross_entropy", logits, targets, at);
    return mean(Operand(softplus(logits, at), at) - Operand(targets, at) * logits, at);
}

Tensor nll_loss(Tensor log_probabilities, Tensor targets, Where at) {
    const LineScope line(log_probabilities.graph(), at);
    std::vector<std::int64_t> column = targets.shape().extents();
    column.push_back(1);
    return -mean(gather(log_probabilities, -1, reshape(targets, Shape(column))));
}

Tensor soft_cross_entropy(Tensor logits, Tensor targets, Where at) {
    expect_one_shape("soft_cross_entropy", logits, targets, at);
    return cross_entropy(logits, targets, CrossEntropyOptions{}, at);
}

Tensor kl_divergence(Tensor log_probabilities, Tensor targets, Where at) {
    expect_one_shape("kl_divergence", log_probabilities, targets, at);
    Graph& graph = log_probabilities.graph();
    const LineScope line(graph, at);
    const Tensor t = stop_gradient(targets), zero = constant(graph, 0.0, t.dtype());
    const Tensor is_zero = equal(t, zero);
    const Tensor log_t = log(select(is_zero, constant(graph, 1.0, t.dtype()), t));
    return mean(sum(select(is_zero, zero, t * (log_t - log_probabilities)), {-1}));
}

}  // namespace mantissa::nn
