#include "mantissa/graph/tensor.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "mantissa/base/error.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

void Tensor::refuse_empty(Where at) {
    refuse("an empty Tensor", {.scope = {}, .line = at},
           "it has no graph, type or shape; assign the result of an operation to it first");
}

namespace {

Origin traced_at(const Graph* graph, Where at) {
    Origin origin = graph ? graph->origin : Origin{};
    if (!origin.line) origin.line = at;
    return origin;
}

/// The graph of all operands. Throws UserError for an empty operand and for operands of several graphs.
Graph& graph_of(std::string_view op, std::span<const Tensor> operands, Where at, Graph* graph = nullptr) {
    for (const Tensor& operand : operands)
        if (operand && !graph) graph = &operand.graph();
    for (std::size_t i = 0; i < operands.size(); ++i) {
        if (!operands[i])
            refuse(op, traced_at(graph, at),
                   fmt::format("operand {} is an empty Tensor; assign the result of an operation to it first",
                               i));
        if (&operands[i].graph() != graph)
            refuse(op, traced_at(graph, at), fmt::format("operand {} belongs to another graph", i));
    }
    if (!graph) refuse(op, traced_at(graph, at), "expected one operand or more, got none");
    return *graph;
}

Graph& graph_of(std::string_view op, std::initializer_list<Tensor> operands, Where at) {
    return graph_of(op, std::span(operands.begin(), operands.size()), at);
}

}  // namespace

std::int64_t axis_from_front(std::string_view op, const Tensor& x, std::int64_t axis, Where at) {
    graph_of(op, {x}, at);
    if (axis < -x.rank() || axis >= x.rank())
        refuse(op, traced_at(&x.graph(), at), fmt::format("axis {} is outside {}", axis, x.type().text()));
    return axis < 0 ? axis + x.rank() : axis;
}

std::int64_t Tensor::dim(int axis, Where at) const {
    return shape()[static_cast<int>(axis_from_front("dim", {graph(at), value_}, axis, at))];
}

std::vector<Tensor> call(Graph& graph, std::string_view op, std::span<const Tensor> inputs,
                         Attributes attributes, Where at) {
    graph_of(op, inputs, at, &graph);
    std::vector<Value> values;
    for (const Tensor& input : inputs) values.push_back(input.value());
    // Nodes of a gradient keep the line of the operation that they are the gradient of.
    const LineScope line(graph, at);
    const NodeId id = graph.add(op, std::move(values), std::move(attributes));
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < graph.node(id).outputs.size(); ++i)
        outputs.emplace_back(graph, Value{id, static_cast<std::int32_t>(i)});
    return outputs;
}

Tensor call1(std::string_view op, std::initializer_list<Tensor> inputs, Attributes attributes, Where at) {
    return call(graph_of(op, inputs, at), op, inputs, std::move(attributes), at)[0];
}

namespace ops {

const Type& Tensor::type(Where at) const { return graph(at).type(value_); }

namespace {

Attributes reduction_attributes(std::string_view op, const Tensor& x, std::vector<std::int64_t> axes,
                                KeepAxes keep, Where at) {
    graph_of(op, {x}, at);
    for (std::int64_t& axis : axes) axis = axis_from_front(op, x, axis, at);
    return {{"axes", std::move(axes)}, {"keep", keep == KeepAxes::yes}};
}

std::vector<std::int64_t> all_axes(std::string_view op, const Tensor& x, Where at) {
    graph_of(op, {x}, at);
    std::vector<std::int64_t> axes(static_cast<std::size_t>(x.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    return axes;
}

/// A number as a scalar of the tensor's own type, so that it changes no type.
Tensor like(std::string_view op, const Operand& x, double value) {
    Graph& graph = graph_of(op, {x.tensor}, x.at);  // refuses an empty one, which has no type
    return constant(graph, value, x.tensor.dtype(), {}, x.at);
}

}  // namespace

Tensor constant(Graph& graph, double value, DType dtype, Shape shape, Where at) {
    return call(graph, "constant", {}, {{"value", value}, {"dtype", dtype}, {"shape", shape.extents()}},
                at)[0];
}

Tensor literal(Graph& graph, SharedData data, Shape shape, Where at) {
    const DType dtype = data.dtype();
    return call(graph, "literal", {},
                {{"values", std::move(data)}, {"dtype", dtype}, {"shape", shape.extents()}}, at)[0];
}

Tensor literal(Graph& graph, std::vector<double> values, DType dtype, Shape shape, Where at) {
    const LineScope line(graph, at);
    try {
        return literal(graph, SharedData(dtype, values), std::move(shape), at);
    } catch (const UserError& error) {
        refuse("literal", graph.origin, error.what());
    }
}

Tensor iota(Graph& graph, Shape shape, int axis, DType dtype, Where at) {
    const std::int64_t front = axis < 0 ? axis + shape.rank() : axis;
    return call(graph, "iota", {}, {{"axis", front}, {"dtype", dtype}, {"shape", shape.extents()}}, at)[0];
}

Tensor random_uniform(Tensor seed, Tensor step, std::int64_t operation, Shape shape, Where at) {
    return call1("random_uniform", {seed, step}, {{"operation", operation}, {"shape", shape.extents()}}, at);
}

Tensor operator+(Operand a, Tensor b) { return call1("add", {a.tensor, b}, {}, a.at); }
Tensor operator-(Operand a, Tensor b) { return call1("sub", {a.tensor, b}, {}, a.at); }
Tensor operator*(Operand a, Tensor b) { return call1("mul", {a.tensor, b}, {}, a.at); }
Tensor operator/(Operand a, Tensor b) { return call1("div", {a.tensor, b}, {}, a.at); }
Tensor operator+(Operand a, double b) { return a + like("add", a, b); }
Tensor operator-(Operand a, double b) { return a - like("sub", a, b); }
Tensor operator*(Operand a, double b) { return a * like("mul", a, b); }
Tensor operator/(Operand a, double b) { return a / like("div", a, b); }
Tensor operator+(double a, Operand b) { return Operand(like("add", b, a), b.at) + b.tensor; }
Tensor operator-(double a, Operand b) { return Operand(like("sub", b, a), b.at) - b.tensor; }
Tensor operator*(double a, Operand b) { return Operand(like("mul", b, a), b.at) * b.tensor; }
Tensor operator/(double a, Operand b) { return Operand(like("div", b, a), b.at) / b.tensor; }
Tensor& operator+=(Tensor& a, Operand b) { return a = Operand(a, b.at) + b.tensor; }
Tensor& operator-=(Tensor& a, Operand b) { return a = Operand(a, b.at) - b.tensor; }
Tensor& operator*=(Tensor& a, Operand b) { return a = Operand(a, b.at) * b.tensor; }
Tensor& operator/=(Tensor& a, Operand b) { return a = Operand(a, b.at) / b.tensor; }
Tensor& operator+=(Tensor& a, Number b) { return a = Operand(a, b.at) + b.value; }
Tensor& operator-=(Tensor& a, Number b) { return a = Operand(a, b.at) - b.value; }
Tensor& operator*=(Tensor& a, Number b) { return a = Operand(a, b.at) * b.value; }
Tensor& operator/=(Tensor& a, Number b) { return a = Operand(a, b.at) / b.value; }
Tensor operator-(Operand a) { return call1("neg", {a.tensor}, {}, a.at); }
Tensor maximum(Tensor a, Tensor b, Where at) { return call1("maximum", {a, b}, {}, at); }
Tensor minimum(Tensor a, Tensor b, Where at) { return call1("minimum", {a, b}, {}, at); }
Tensor maximum(Tensor a, double b, Where at) { return maximum(a, like("maximum", {a, at}, b), at); }
Tensor minimum(Tensor a, double b, Where at) { return minimum(a, like("minimum", {a, at}, b), at); }
Tensor less(Tensor a, Tensor b, Where at) { return call1("less", {a, b}, {}, at); }
Tensor less_equal(Tensor a, Tensor b, Where at) { return call1("less_equal", {a, b}, {}, at); }
Tensor equal(Tensor a, Tensor b, Where at) { return call1("equal", {a, b}, {}, at); }
Tensor logical_and(Tensor a, Tensor b, Where at) { return call1("logical_and", {a, b}, {}, at); }
Tensor select(Tensor condition, Tensor a, Tensor b, Where at) {
    return call1("select", {condition, a, b}, {}, at);
}
Tensor exp(Tensor x, Where at) { return call1("exp", {x}, {}, at); }
Tensor log(Tensor x, Where at) { return call1("log", {x}, {}, at); }
Tensor tanh(Tensor x, Where at) { return call1("tanh", {x}, {}, at); }
Tensor erf(Tensor x, Where at) { return call1("erf", {x}, {}, at); }
Tensor sin(Tensor x, Where at) { return call1("sin", {x}, {}, at); }
Tensor cos(Tensor x, Where at) { return call1("cos", {x}, {}, at); }
Tensor sqrt(Tensor x, Where at) { return call1("sqrt", {x}, {}, at); }
Tensor rsqrt(Tensor x, Where at) { return call1("rsqrt", {x}, {}, at); }
Tensor abs(Tensor x, Where at) {
    const LineScope line(graph_of("abs", {x}, at), at);
    return maximum(x, -x);
}

namespace {

/// x^exponent, by squaring.
Tensor whole_power(Tensor x, int exponent) {
    Tensor power;
    for (;; x = x * x) {
        if (exponent % 2 == 1) power = power ? power * x : x;
        exponent /= 2;
        if (exponent == 0) return power;
    }
}

}  // namespace

Tensor pow(Tensor x, double exponent, Where at) {
    constexpr double max_multiplied_out = 64;
    const LineScope line(graph_of("pow", {x}, at), at);
    const double size = std::abs(exponent);
    if (size > max_multiplied_out || size != std::floor(size)) return exp(log(x) * exponent);
    if (size == 0) return broadcast_to(like("pow", {x, at}, 1), x.shape());
    const Tensor power = whole_power(x, static_cast<int>(size));
    return exponent < 0 ? 1.0 / power : power;
}

Tensor is_finite(Tensor x, Where at) { return call1("is_finite", {x}, {}, at); }
Tensor cast(Tensor x, DType dtype, Where at) {
    graph_of("cast", {x}, at);
    return x.dtype() == dtype ? x : call1("cast", {x}, {{"dtype", dtype}}, at);
}
Tensor stop_gradient(Tensor x, Where at) { return call1("stop_gradient", {x}, {}, at); }

Tensor reshape(Tensor x, Shape shape, Where at) {
    const Origin origin = traced_at(&graph_of("reshape", {x}, at), at);
    Shape rest = shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (shape[axis] != -1) continue;
        rest[axis] = 1;
        const std::int64_t elements = x.shape().elements(), others = rest.elements();
        if (others <= 0 || elements % others != 0)
            refuse("reshape", origin,
                   fmt::format("{} has {} elements, which {} cannot share", x.type().text(), elements,
                               shape.text()));
        shape[axis] = elements / others;
        break;
    }
    return x.shape() == shape ? x : call1("reshape", {x}, {{"shape", shape.extents()}}, at);
}

Tensor transpose(Tensor x, std::vector<std::int64_t> order, Where at) {
    return call1("transpose", {x}, {{"order", std::move(order)}}, at);
}

Tensor broadcast_to(Tensor x, Shape shape, Where at) {
    graph_of("broadcast", {x}, at);
    return x.shape() == shape ? x : call1("broadcast", {x}, {{"shape", shape.extents()}}, at);
}

Tensor slice(Tensor x, int axis, std::int64_t start, std::int64_t stop, Where at) {
    return call1("slice", {x},
                 {{"axis", axis_from_front("slice", x, axis, at)}, {"start", start}, {"stop", stop}}, at);
}

Tensor pad(Tensor x, int axis, std::int64_t before, std::int64_t after, Where at) {
    return call1("pad", {x},
                 {{"axis", axis_from_front("pad", x, axis, at)}, {"before", before}, {"after", after}}, at);
}

std::vector<Tensor> split(Tensor x, int axis, std::int64_t parts, Where at) {
    return call(graph_of("split", {x}, at), "split", {&x, 1},
                {{"axis", axis_from_front("split", x, axis, at)}, {"parts", parts}}, at);
}

Tensor concat(std::span<const Tensor> parts, int axis, Where at) {
    Graph& graph = graph_of("concat", parts, at);
    return call(graph, "concat", parts, {{"axis", axis_from_front("concat", parts[0], axis, at)}}, at)[0];
}

Tensor write_slice(Tensor x, Tensor part, Tensor start, int axis, Where at) {
    return call1("write_slice", {x, part, start}, {{"axis", axis_from_front("write_slice", x, axis, at)}},
                 at);
}

Tensor embedding(Tensor table, Tensor ids, Where at) { return call1("embedding", {table, ids}, {}, at); }

Tensor sum(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep, Where at) {
    return call1("sum", {x}, reduction_attributes("sum", x, std::move(axes), keep, at), at);
}

Tensor sum(Tensor x, Where at) { return sum(x, all_axes("sum", x, at), KeepAxes::no, at); }
Tensor max(Tensor x, Where at) { return max(x, all_axes("max", x, at), KeepAxes::no, at); }
Tensor mean(Tensor x, Where at) { return mean(x, all_axes("mean", x, at), KeepAxes::no, at); }

Tensor sum_as(DType output, Tensor x, std::vector<std::int64_t> axes, Where at) {
    Attributes attributes = reduction_attributes("sum", x, std::move(axes), KeepAxes::no, at);
    if (output != x.dtype()) attributes = attributes.with("output", output);
    return call1("sum", {x}, std::move(attributes), at);
}

Tensor max(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep, Where at) {
    return call1("max", {x}, reduction_attributes("max", x, std::move(axes), keep, at), at);
}

Tensor mean(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep, Where at) {
    const LineScope line(graph_of("mean", {x}, at), at);
    std::int64_t count = 1;
    for (const std::int64_t axis : axes)
        count *= x.shape()[static_cast<int>(axis_from_front("mean", x, axis, at))];
    const Tensor total = sum(x, axes, keep);
    return total * (1.0 / static_cast<double>(count));
}

Tensor matmul(Tensor a, Tensor b, const MatmulOptions& options, Where at) {
    std::vector<Tensor> inputs{a, b};
    if (options.bias) inputs.push_back(*options.bias);
    Graph& graph = graph_of("matmul", inputs, at);
    Attributes attributes{{"transpose_a", options.transpose_a}, {"transpose_b", options.transpose_b}};
    if (options.output && *options.output != a.dtype())
        attributes = attributes.with("output", *options.output);
    if (!options.multiply.empty()) attributes = attributes.with("multiply", options.multiply);
    return call(graph, "matmul", inputs, std::move(attributes), at)[0];
}

namespace {

Attributes convolution_attributes(Tensor x, const Conv2dOptions& options) {
    const auto list = [](const auto& numbers) {
        return std::vector<std::int64_t>(numbers.begin(), numbers.end());
    };
    Attributes attributes{{"dilation", list(options.dilation)},
                          {"groups", options.groups},
                          {"padding", list(options.padding)},
                          {"stride", list(options.stride)}};
    if (options.output && *options.output != x.dtype())
        attributes = attributes.with("output", *options.output);
    if (!options.multiply.empty()) attributes = attributes.with("multiply", options.multiply);
    return attributes;
}

}  // namespace

Tensor conv2d(Tensor x, Tensor filter, const Conv2dOptions& options, Where at) {
    std::vector<Tensor> inputs{x, filter};
    if (options.bias) inputs.push_back(*options.bias);
    Graph& graph = graph_of("conv2d", inputs, at);
    return call(graph, "conv2d", inputs, convolution_attributes(x, options), at)[0];
}

Tensor conv_transpose2d(Tensor x, Tensor filter, const Conv2dOptions& options,
                        std::array<std::int64_t, 2> more, Where at) {
    Graph& graph = graph_of("conv_transpose2d", {x, filter}, at);
    const LineScope line(graph, at);
    if (x.rank() != 4 || filter.rank() != 4)
        refuse("conv_transpose2d", traced_at(&graph, at),
               fmt::format("expected images [N, H, W, C] and filters [R, S, K / groups, C], got {} and {}",
                           x.type().text(), filter.type().text()));
    std::vector<std::int64_t> extents;
    for (std::size_t axis : {0u, 1u}) {
        const std::int64_t inputs = x.shape()[static_cast<int>(axis) + 1];
        extents.push_back(
            (inputs - 1) * options.stride[axis] - options.padding[2 * axis] - options.padding[2 * axis + 1] +
            (filter.shape()[static_cast<int>(axis)] - 1) * options.dilation[axis] + 1 + more[axis]);
    }
    const Tensor y = call1("conv2d_input_gradient", {x, filter},
                           convolution_attributes(x, options).with("extents", std::move(extents)));
    return options.bias ? call1("add_bias", {y, *options.bias}) : y;
}

Tensor conv1d(Tensor x, Tensor filter, const Conv1dOptions& options, Where at) {
    Graph& graph = graph_of("conv1d", {x, filter}, at);
    const LineScope line(graph, at);
    if (x.rank() != 3 || filter.rank() != 3)
        refuse("conv1d", traced_at(&graph, at),
               fmt::format("expected x [N, T, C] and filters [R, C / groups, K], got {} and {}",
                           x.type().text(), filter.type().text()));
    const Shape &of = x.shape(), &window = filter.shape();
    const Tensor y =
        conv2d(reshape(x, {of[0], 1, of[1], of[2]}), reshape(filter, {1, window[0], window[1], window[2]}),
               {.stride = {1, options.stride},
                .padding = {0, 0, options.padding[0], options.padding[1]},
                .dilation = {1, options.dilation},
                .groups = options.groups,
                .bias = options.bias});
    return reshape(y, {of[0], y.shape()[2], y.shape()[3]});
}

Tensor layer_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon, Where at) {
    return call1("layer_norm", {x, gamma, beta}, {{"epsilon", epsilon}}, at);
}

Tensor rms_norm(Tensor x, Tensor gamma, double epsilon, Where at) {
    return call1("rms_norm", {x, gamma}, {{"epsilon", epsilon}}, at);
}

Tensor rotary(Tensor x, Tensor cosine, Tensor sine, Where at) {
    return call1("rotary", {x, cosine, sine}, {}, at);
}

Tensor softmax(Tensor x, Where at) { return call1("softmax", {x}, {}, at); }

Tensor gelu(Tensor x, Where at) { return call1("gelu", {x}, {}, at); }

Tensor relu(Tensor x, Where at) { return call1("relu", {x}, {}, at); }
Tensor sigmoid(Tensor x, Where at) { return call1("sigmoid", {x}, {}, at); }
Tensor elu(Tensor x, double alpha, Where at) { return call1("elu", {x}, {{"alpha", alpha}}, at); }
Tensor softplus(Tensor x, Where at) { return call1("softplus", {x}, {}, at); }
Tensor swish(Tensor x, Where at) { return call1("swish", {x}, {}, at); }

BatchNormed batch_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon, Where at) {
    const std::vector<Tensor> outputs = call(graph_of("batch_norm", {x, gamma, beta}, at), "batch_norm",
                                             std::vector{x, gamma, beta}, {{"epsilon", epsilon}}, at);
    return {.y = outputs[0], .mean = outputs[1], .variance = outputs[2]};
}

Tensor normalize(Tensor x, Tensor gamma, Tensor beta, const ChannelStatistics& statistics, double epsilon,
                 Where at) {
    return call1("normalize", {x, gamma, beta, statistics.mean, statistics.variance}, {{"epsilon", epsilon}},
                 at);
}

namespace {

Attributes pool_attributes(const Pool2dOptions& options) {
    const Attributes attributes{{"window", std::vector(options.window.begin(), options.window.end())},
                                {"stride", std::vector(options.stride.begin(), options.stride.end())},
                                {"padding", std::vector(options.padding.begin(), options.padding.end())}};
    return options.ceil_mode ? attributes.with("ceil_mode", true) : attributes;
}

}  // namespace

Tensor max_pool2d(Tensor x, const Pool2dOptions& options, Where at) {
    return call1("max_pool2d", {x}, pool_attributes(options), at);
}

Tensor average_pool2d(Tensor x, const Pool2dOptions& options, Where at) {
    return call1("average_pool2d", {x}, pool_attributes(options).with("count_padding", options.count_padding),
                 at);
}

Tensor adaptive_average_pool2d(Tensor x, std::array<std::int64_t, 2> extents, Where at) {
    return call1("adaptive_average_pool2d", {x}, {{"extents", std::vector(extents.begin(), extents.end())}},
                 at);
}

Tensor cross_entropy(Tensor logits, Tensor targets, Where at) {
    return call1("cross_entropy", {logits, targets}, {}, at);
}

Tensor counted_cross_entropy(Tensor logits, Tensor targets, Tensor counted, Where at) {
    Graph& graph = graph_of("cross_entropy", {logits, targets}, at);
    const LineScope line(graph, at);
    if (!counted) {
        std::vector<std::int64_t> axes(targets.rank());
        std::iota(axes.begin(), axes.end(), std::int64_t{0});
        const Tensor counts = less_equal(constant(graph, 0.0, DType::i32), targets);
        counted = maximum(sum(cast(counts, DType::f32), axes), constant(graph, 1.0, DType::f32));
    }
    const auto rows = static_cast<double>(targets.shape().elements());
    const Tensor share = constant(graph, rows, counted.dtype()) / counted;
    return call1("cross_entropy", {logits, targets}, {{"ignore_negative", true}}, at) * share;
}

Tensor dropout(Tensor x, const RandomState& random, double rate, std::int64_t operation, Where at) {
    if (rate == 0) return x;
    return call1("dropout", {x, random.seed, random.step}, {{"rate", rate}, {"operation", operation}}, at);
}

Tensor by_elements(const char* op, std::initializer_list<Tensor> operands, Where at) {
    return call1(op, operands, {}, at);
}

Tensor clamp(Tensor x, double least, double most, Where at) {
    const LineScope line(graph_of("clamp", {x}, at), at);
    const Tensor low = like("clamp", {x, at}, least), high = like("clamp", {x, at}, most);
    return select(less(x, low), low, select(less(high, x), high, x));
}

Tensor logical_not(Tensor a, Where at) {
    Graph& graph = graph_of("logical_not", {a}, at);
    const LineScope line(graph, at);
    return select(a, constant(graph, 0, DType::boolean), constant(graph, 1, DType::boolean));
}

Tensor logical_or(Tensor a, Tensor b, Where at) {
    Graph& graph = graph_of("logical_or", {a, b}, at);
    const LineScope line(graph, at);
    return select(a, constant(graph, 1, DType::boolean), b);
}

}  // namespace ops

Tensor reduce_to(Tensor x, const Shape& shape) { return reduce_to(x, shape, x.dtype()); }

Tensor reduce_to(Tensor x, const Shape& shape, DType output) {
    if (x.shape() == shape) return cast(x, output);
    const int missing = x.rank() - shape.rank();
    std::vector<std::int64_t> axes;
    for (int axis = 0; axis < x.rank(); ++axis)
        if (axis < missing || (shape[axis - missing] == 1 && x.dim(axis) != 1)) axes.push_back(axis);
    return reshape(sum_as(output, x, std::move(axes)), shape);
}

}  // namespace mantissa
