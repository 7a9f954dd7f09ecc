// Cross-entropy and its gradient, and the fused linear cross-entropy of a linear layer with both its
// gradients.
#include <limits>

#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ignored_targets.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

DType loss_dtype(const Type& logits) { return logits.dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Checks that the first `classes` columns of the logits count; the columns behind are padding.
void expect_classes(const OpCall& call, std::int64_t columns) {
    if (!call.attributes.has("classes")) return;
    const std::int64_t classes = call.attributes.integer("classes");
    expect(1 <= classes && classes <= columns, "there are {} logits, not {}", columns, classes);
}

/// The logits, -infinity in the columns of padding: they weigh nothing, and no gradient reaches them.
Tensor without_padding(const DefinitionCall& call, Tensor logits) {
    if (!call.attributes.has("classes")) return logits;
    const Tensor column = iota(call.graph, {logits.dim(-1)}, 0);
    const Tensor classes =
        constant(call.graph, static_cast<double>(call.attributes.integer("classes")), DType::i32);
    const Tensor nothing = constant(call.graph, -std::numeric_limits<double>::infinity(), logits.dtype());
    return select(less(column, classes), logits, nothing);
}

std::vector<Type> cross_entropy_types(const OpCall& call) {
    const Type& logits = call.inputs[0];
    expect_floating(call, 0);
    expect_dtype(call, 1, DType::i32);
    expect(logits.shape.rank() >= 1, "logits must be [..., V], got {}", logits.text());
    expect_classes(call, logits.shape[-1]);
    std::vector<std::int64_t> rows = logits.shape.extents();
    rows.pop_back();
    expect_shape(call, 1, Shape(rows));
    const Type of_rows{loss_dtype(logits), Shape(rows)};
    return {gives_rows(call.attributes) ? of_rows : Type{loss_dtype(logits), {}}, of_rows};
}

/// logits, targets -> mean loss over all rows, or the loss of each, and the log-sum-exp of each row.
std::vector<Tensor> cross_entropy_definition(const DefinitionCall& call) {
    const Tensor logits = without_padding(call, as_f32(call.inputs[0]));
    const Shape rows = call.inputs[1].shape();
    const Tensor highest = stop_gradient(max(logits, {-1}, KeepAxes::yes));
    const Tensor log_sum_exp = log(sum(exp(logits - highest), {-1}, KeepAxes::yes)) + highest;
    std::vector<std::int64_t> column = rows.extents();
    column.push_back(1);
    const Tensor is_target =
        equal(iota(call.graph, logits.shape(), -1), reshape(call.inputs[1], Shape(column)));
    const Tensor zero = constant(call.graph, 0.0, logits.dtype());
    const Tensor of_target = sum(select(is_target, logits, zero), {-1}, KeepAxes::yes);
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis < logits.rank(); ++axis) axes.push_back(axis);
    Tensor loss = log_sum_exp - of_target;
    if (ignores_negative(call.attributes)) {
        const Tensor counts =
            less_equal(constant(call.graph, 0.0, DType::i32), reshape(call.inputs[1], Shape(column)));
        loss = select(counts, loss, zero);
    }
    return {gives_rows(call.attributes) ? reshape(loss, rows) : mean(loss, axes), reshape(log_sum_exp, rows)};
}

std::vector<Tensor> cross_entropy_gradient(const GradientCall& c) {
    const bool rows = gives_rows(c.attributes);
    check(rows || !c.cotangents[1], "the log-sum-exp of a mean cross_entropy is not differentiated");
    const auto or_zeros = [&](Tensor cotangent, const Tensor& output) {
        return cotangent ? cotangent : constant(c.graph, 0.0, output.dtype(), output.shape());
    };
    std::vector<Tensor> inputs{or_zeros(c.cotangents[0], c.outputs[0]), c.inputs[0], c.inputs[1],
                               c.outputs[1]};
    if (rows) inputs.push_back(or_zeros(c.cotangents[1], c.outputs[1]));
    return {call(c.graph, "cross_entropy_grad", inputs, c.attributes)[0], Tensor{}};
}

/// dloss, logits, targets, log-sum-exp, with `rows` also the gradient of the log-sum-exp -> dlogits.
std::vector<Type> cross_entropy_grad_types(const OpCall& call) {
    const bool rows = gives_rows(call.attributes);
    expect_shape(call, 0, rows ? call.inputs[2].shape : Shape{});
    expect_shape(call, 3, call.inputs[2].shape);
    expect(call.inputs.size() == (rows ? 5 : 4), "the gradient of the log-sum-exp belongs to losses of rows");
    for (const std::size_t gradient : {std::size_t{0}, std::size_t{4}})
        if (rows)
            expect(call.inputs[gradient] == call.inputs[3], "operand {} must be {}, got {}", gradient,
                   call.inputs[3].text(), call.inputs[gradient].text());
    expect(call.inputs[1].shape.rank() >= 1, "logits must be [..., V], got {}", call.inputs[1].text());
    expect_classes(call, call.inputs[1].shape[-1]);
    return {call.inputs[1]};
}

std::vector<Tensor> cross_entropy_grad_definition(const DefinitionCall& call) {
    return {differentiate_definition(
        {.op = "cross_entropy",
         .inputs = {call.inputs[1], call.inputs[2]},
         .cotangents = {call.inputs[0], call.inputs.size() == 5 ? call.inputs[4] : Tensor{}},
         .saved = {{1, call.inputs[3]}}},
        call.graph, call.attributes)[0]};
}

/// Whether w is frozen, so that it has no gradient.
bool is_frozen(const Attributes& attributes) { return attributes.has("frozen"); }

/// x [N, C], w [V, C], targets [N], and a seed where gradients are wanted -> loss, dx [N, C], dw [V, C]. With
/// the attribute `classes`, rows of w from there on are padding. With `frozen` there is no dw. With `rows`
/// these are [N]: the loss, the seed, a second seed for the log-sum-exp, and that, the last output.
std::vector<Type> linear_cross_entropy_types(const OpCall& call) {
    const Type &x = call.inputs[0], &w = call.inputs[1];
    expect_floating(call, 0);
    expect(x.dtype == w.dtype, "x and w must have one type, got {} and {}", x.text(), w.text());
    expect(x.shape.rank() == 2, "x must be [N, C], got {}", x.text());
    expect(w.shape.rank() == 2 && w.shape[1] == x.shape[1], "w must be [V, {}], got {}", x.shape[1],
           w.text());
    expect_dtype(call, 2, DType::i32);
    expect_shape(call, 2, {x.shape[0]});
    expect_multiply(call, x.dtype);
    expect_classes(call, w.shape[0]);
    const bool rows = gives_rows(call.attributes);
    const Type loss{loss_dtype(x), rows ? Shape{x.shape[0]} : Shape{}};
    std::vector<Type> outputs{loss};
    if (call.inputs.size() > 3) {
        expect(call.inputs.size() == (rows ? 5 : 4), "losses of rows have two seeds, their mean one");
        for (std::size_t seed = 3; seed < call.inputs.size(); ++seed)
            expect(call.inputs[seed] == loss, "the seed must be {}, got {}", loss.text(),
                   call.inputs[seed].text());
        outputs.push_back(x);
        if (!is_frozen(call.attributes)) outputs.push_back({loss_dtype(w), w.shape});
    }
    if (rows) outputs.push_back(loss);
    return outputs;
}

/// x and w are leaves of its own: they may be one value, and where an embedding is tied, x depends on w, and
/// that path is not this operation's.
std::vector<Tensor> linear_cross_entropy_definition(const DefinitionCall& call) {
    const Tensor x = stop_gradient(as_f32(call.inputs[0])), w = stop_gradient(as_f32(call.inputs[1]));
    MatmulOptions options{.transpose_b = true};
    if (call.attributes.has("multiply")) options.multiply = call.attributes.word("multiply");
    Attributes attributes;
    if (call.attributes.has("classes"))
        attributes = attributes.with("classes", call.attributes.integer("classes"));
    if (ignores_negative(call.attributes)) attributes = attributes.with("ignore_negative", true);
    const bool rows = gives_rows(call.attributes);
    if (rows) attributes = attributes.with("rows", true);
    const std::vector<Tensor> losses = mantissa::call(
        call.graph, "cross_entropy", std::vector{matmul(x, w, options), call.inputs[2]}, attributes);
    std::vector<Tensor> outputs{losses[0]};
    if (call.inputs.size() > 3) {
        const std::vector<Tensor> seeds{call.inputs[3], rows ? call.inputs[4] : Tensor{}};
        std::vector<Tensor> wrt{x};
        if (!is_frozen(call.attributes)) wrt.push_back(w);
        const std::vector<Tensor> gradients = backpropagate(call.graph, losses, seeds, wrt);
        outputs.push_back(cast(gradients[0], call.inputs[0].dtype()));
        if (wrt.size() == 2) outputs.push_back(gradients[1]);
    }
    if (rows) outputs.push_back(losses[1]);
    return outputs;
}

/// The products that make the logits, dx and dw, and the work of both operations above.
std::int64_t linear_cross_entropy_flops(std::span<const Type> inputs, std::span<const Type>,
                                        const Attributes& attributes) {
    const std::int64_t logits = inputs[0].shape[0] * inputs[1].shape[0], C = inputs[0].shape[1];
    return logits * (inputs.size() == 3 ? 2 * C + 14 : (is_frozen(attributes) ? 4 : 6) * C + 27);
}

/// The attributes of a loss whose logits are padded.
Attributes with_classes(const LongerOperands& x) {
    return x.node.attributes.has("classes") ? x.node.attributes : x.node.attributes.with("classes", x.rows);
}

/// Along which axis operand `index` is longer, if it alone is.
int axis_of_only(const LongerOperands& x, std::size_t index) {
    for (std::size_t i = 0; i < x.axes.size(); ++i)
        if (i != index && x.axes[i] >= 0) return -1;
    return x.axes[index];
}

std::optional<LongerOutputs> pass_cross_entropy(const LongerOperands& x) {
    if (axis_of_only(x, 0) != x.type(0).shape.rank() - 1) return std::nullopt;
    return LongerOutputs{{-1, -1}, with_classes(x)};
}

std::optional<LongerOutputs> pass_cross_entropy_grad(const LongerOperands& x) {
    const int last = x.type(1).shape.rank() - 1;
    if (axis_of_only(x, 1) != last) return std::nullopt;
    return LongerOutputs{{last}, with_classes(x)};
}

std::optional<LongerOutputs> pass_linear_cross_entropy(const LongerOperands& x) {
    if (axis_of_only(x, 1) != 0) return std::nullopt;
    LongerOutputs longer{std::vector<int>(x.node.outputs.size(), -1), with_classes(x)};
    if (x.node.inputs.size() > 3 && !is_frozen(x.node.attributes)) longer.axes[2] = 0;
    return longer;
}

}  // namespace

std::span<const Op> loss_ops() {
    static const std::vector<Op> rows = {
        {.name = "cross_entropy",
         .min_inputs = 2,
         .types = cross_entropy_types,
         .gradient = cross_entropy_gradient,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops = flops_per_input<14>,
         .definition = cross_entropy_definition,
         .padding = pass_cross_entropy},
        {.name = "cross_entropy_grad",
         .min_inputs = 4,
         .max_inputs = 5,
         .types = cross_entropy_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         // an exponential, a subtraction, a comparison and a product
         .flops = [](auto inputs, auto, const Attributes&) { return 13 * inputs[1].shape.elements(); },
         .definition = cross_entropy_grad_definition,
         .padding = pass_cross_entropy_grad},
        {.name = "linear_cross_entropy",
         .min_inputs = 3,
         .max_inputs = 5,
         .types = linear_cross_entropy_types,
         .no_gradient = "it gives its gradients itself, and is made after differentiation",
         .flops = linear_cross_entropy_flops,
         .definition = linear_cross_entropy_definition,
         .padding = pass_linear_cross_entropy,
         .gains_by_padding = true},
    };
    return rows;
}

}  // namespace mantissa
