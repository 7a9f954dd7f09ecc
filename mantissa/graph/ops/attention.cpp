// Attention over the last two axes, softmax(scale q k^T) v, and its gradient (Vaswani et al. 2017).
#include <limits>

#include "mantissa/graph/attention_layout.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

/// The type of the log-sum-exp, [B, H, T]: FP32, or FP64 where the tensors are.
Type log_sum_exp_type(DType dtype, const AttentionExtents& e) {
    return {dtype == DType::f64 ? DType::f64 : DType::f32, {e.sequences, e.heads, e.queries}};
}

Type result_type(DType dtype, const AttentionLayout& layout, const AttentionExtents& e) {
    return {dtype, stored_shape(layout.result, {e.sequences, e.heads, e.queries, e.head_size})};
}

std::string plural(const std::string& holds) {
    const auto name = [](char letter) {
        return letter == 'q' ? "queries" : letter == 'k' ? "keys" : "values";
    };
    std::string text;
    for (const char letter : holds) text += fmt::format("{}{}", text.empty() ? "" : " and ", name(letter));
    return text;
}

/// Each head of keys and values serves as many heads of queries.
void expect_groups(std::int64_t heads, std::int64_t key_heads) {
    expect(key_heads > 0 ? heads % key_heads == 0 : heads == 0,
           "{} heads of queries cannot share {} heads of keys and values", heads, key_heads);
}

/// The tensors of queries, keys and values from operand `first` on, as the layout has them.
AttentionExtents expect_attention_operands(const OpCall& call, std::size_t first,
                                           const AttentionLayout& layout) {
    const std::span<const Type> tensors = call.inputs.subspan(first, layout.operands.size());
    expect_floating(call, first);
    std::string types;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const AttentionTensor& tensor = layout.operands[i];
        expect(tensors[i].shape.rank() == static_cast<int>(tensor.axes.size()), "{} must be {}, got {}",
               plural(tensor.holds), axes_text(tensor), tensors[i].text());
        types += fmt::format("{}{}",
                             i == 0                    ? ""
                             : i + 1 == tensors.size() ? " and "
                                                       : ", ",
                             tensors[i].text());
    }
    for (const Type& type : tensors)
        expect(type.dtype == tensors[0].dtype, "queries, keys and values must have one type, got {}", types);
    const AttentionExtents e = attention_extents(layout, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i)
        expect_shape(call, first + i, operand_shape(layout.operands[i], e));
    expect_groups(e.heads, e.key_heads);
    expect(e.keys >= 1, "there must be a key to attend to, got {}",
           tensors[part_of(layout, 'k').tensor].text());
    expect(!call.attributes.flag("causal") || e.keys >= e.queries,
           "with a causal mask there must be a key for every query, got {} queries and {} keys", e.queries,
           e.keys);
    return e;
}

/// So many operands beside the tensors of queries, keys and values.
void expect_tensors(const OpCall& call, const AttentionLayout& layout, std::size_t others) {
    expect(call.inputs.size() == layout.operands.size() + others, "expected {} operands, got {}",
           layout.operands.size() + others, call.inputs.size());
}

std::vector<Type> attention_types(const OpCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    expect_tensors(call, layout, 0);
    const AttentionExtents e = expect_attention_operands(call, 0, layout);
    const DType dtype = call.inputs[0].dtype;
    return {result_type(dtype, layout, e), log_sum_exp_type(dtype, e)};
}

/// Axis i of the result is the one that `to` has at i, of a tensor whose axes are `from`.
Tensor reordered(Tensor x, const std::string& from, const std::string& to) {
    if (from == to) return x;
    std::vector<std::int64_t> order;
    for (const char letter : to) order.push_back(static_cast<std::int64_t>(from.find(letter)));
    return transpose(x, order);
}

/// q, k and v, each [B, H, T, D], of the tensors that hold them.
std::vector<Tensor> heads_of(const AttentionLayout& layout, std::span<const Tensor> stored) {
    std::vector<Tensor> heads;
    for (const char name : {'q', 'k', 'v'}) {
        const auto [tensor, index] = part_of(layout, name);
        const auto& [holds, axes] = layout.operands[tensor];
        const Tensor x = stored[tensor];
        heads.push_back(holds.size() == 1 ? reordered(x, axes, plain_attention_axes)
                                          : reshape(slice(reordered(x, axes, "pbhtd"), 0, index, index + 1),
                                                    heads_of_stored(axes, x.shape())));
    }
    return heads;
}

/// The tensors that hold q, k and v, each given as [B, H, T, D].
std::vector<Tensor> stored_as(const AttentionLayout& layout, std::span<const Tensor> heads) {
    std::vector<Tensor> stored;
    for (const auto& [holds, axes] : layout.operands) {
        std::vector<Tensor> parts;
        for (const char name : holds) {
            const Tensor& part = heads[std::string_view("qkv").find(name)];
            parts.push_back(holds.size() == 1 ? part : reshape(part, stored_shape("pbhtd", part.shape())));
        }
        stored.push_back(holds.size() == 1 ? reordered(parts[0], plain_attention_axes, axes)
                                           : reordered(concat(parts, 0), "pbhtd", axes));
    }
    return stored;
}

/// scale q k^T [B, H, T, S]. The queries of all heads that share keys are rows of one product.
Tensor scores_of(const Tensor& q, const Tensor& k, double scale) {
    const std::int64_t B = q.dim(0), H = q.dim(1), T = q.dim(2), G = k.dim(1), S = k.dim(2);
    const Tensor rows = reshape(q, {B, G, G == 0 ? 0 : H / G * T, q.dim(3)});
    return reshape(matmul(rows, k, {.transpose_b = true}) * scale, {B, H, T, S});
}

/// weights [B, H, T, S] times v [B, G, S, D] -> [B, H, T, D].
Tensor weighted(const Tensor& weights, const Tensor& v) {
    const std::int64_t B = weights.dim(0), H = weights.dim(1), T = weights.dim(2), G = v.dim(1);
    const Tensor rows = reshape(weights, {B, G, G == 0 ? 0 : H / G * T, v.dim(2)});
    return reshape(matmul(rows, v), {B, H, T, v.dim(3)});
}

/// The tensors of q, k, v -> o, log-sum-exp [B, H, T]. Causal: the last query sees the last key, so query i
/// sees keys up to i + S - T.
std::vector<Tensor> attention_definition(const DefinitionCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const std::vector<Tensor> heads = heads_of(layout, call.inputs);
    const Tensor q = as_f32(heads[0]), k = as_f32(heads[1]), v = as_f32(heads[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    Tensor scores = scores_of(q, k, call.attributes.number("scale"));
    if (call.attributes.flag("causal")) {
        const Tensor last = iota(call.graph, {T, S}, 0) + static_cast<double>(S - T);
        const Tensor hidden = constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype());
        scores = select(less_equal(iota(call.graph, {T, S}, 1), last), scores, hidden);
    }
    const Tensor highest = stop_gradient(max(scores, {-1}, KeepAxes::yes));
    const Tensor log_sum_exp = log(sum(exp(scores - highest), {-1}, KeepAxes::yes)) + highest;
    const Tensor weights = exp(scores - log_sum_exp);
    const Tensor o = cast(weighted(weights, v), call.inputs[0].dtype());
    return {reordered(o, plain_attention_axes, layout.result), reshape(log_sum_exp, {q.dim(0), q.dim(1), T})};
}

std::vector<Tensor> attention_gradient(const GradientCall& c) {
    check(!c.cotangents[1], "the log-sum-exp of attention is not differentiated");
    std::vector<Tensor> operands{c.cotangents[0]};
    operands.insert(operands.end(), c.inputs.begin(), c.inputs.end());
    operands.insert(operands.end(), c.outputs.begin(), c.outputs.end());
    return call(c.graph, "attention_grad", operands, c.attributes);
}

/// do, the tensors of q, k, v, then o and the log-sum-exp -> the gradient of each tensor, stored as it is.
std::vector<Type> attention_grad_types(const OpCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    expect_tensors(call, layout, 3);
    const AttentionExtents e = expect_attention_operands(call, 1, layout);
    const std::size_t o_at = call.inputs.size() - 2;
    const Type result = result_type(call.inputs[1].dtype, layout, e);
    for (const std::size_t like_o : {std::size_t{0}, o_at})
        expect(call.inputs[like_o] == result, "operand {} must be {}, got {}", like_o, result.text(),
               call.inputs[like_o].text());
    const Type lse = log_sum_exp_type(call.inputs[1].dtype, e);
    expect(call.inputs[o_at + 1] == lse, "operand {} must be {}, got {}", o_at + 1, lse.text(),
           call.inputs[o_at + 1].text());
    return {call.inputs.begin() + 1, call.inputs.end() - 2};
}

/// A kernel reads o and the log-sum-exp instead of the scores; the definition computes both again.
std::vector<Tensor> attention_grad_definition(const DefinitionCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const std::size_t tensors = layout.operands.size();
    const std::vector<Tensor> heads = heads_of(layout, call.inputs.subspan(1, tensors));
    const Tensor d_o = reordered(call.inputs[0], layout.result, plain_attention_axes);
    const Tensor o = reordered(call.inputs[tensors + 1], layout.result, plain_attention_axes);
    const std::vector<Tensor> gradients = differentiate_definition(
        {.op = "attention",
         .inputs = heads,
         .cotangents = {d_o, {}},
         .saved = {{0, o}, {1, call.inputs[tensors + 2]}}},
        call.graph, with_layout(call.attributes.flag("causal"), call.attributes.number("scale"), {}));
    return stored_as(layout, gradients);
}

/// Pairs of a query and a key that it sees.
std::int64_t visible_pairs(const AttentionExtents& e, const Attributes& attributes) {
    const std::int64_t T = e.queries, S = e.keys;
    const std::int64_t pairs = attributes.flag("causal") ? T * (S - T) + T * (T + 1) / 2 : T * S;
    return e.sequences * e.heads * pairs;
}

/// Two products of D multiply-adds a pair, and a softmax of 14.
std::int64_t attention_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    const AttentionExtents e = attention_extents(attention_layout(a), inputs);
    return visible_pairs(e, a) * (4 * e.head_size + 14);
}

/// Five products: the scores once more, the gradients of the weights, of q, k and v; and an exponential.
std::int64_t attention_grad_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    const AttentionExtents e = attention_extents(attention_layout(a), inputs.subspan(1));
    return visible_pairs(e, a) * (10 * e.head_size + 14);
}

/// q [B, H, T, D], k and v [B, G, S, D], positions i32 [T], or [B, T] where sequences stand at others.
std::vector<Type> kept_attention_types(const OpCall& call) {
    const Type &q = call.inputs[0], &k = call.inputs[1];
    expect_floating(call, 0);
    expect(q.shape.rank() == 4 && k.shape.rank() == 4, "queries and keys must be [B, H, T, D], got {} and {}",
           q.text(), k.text());
    expect(k.dtype == q.dtype && call.inputs[2].dtype == q.dtype,
           "queries, keys and values must have one type, got {}, {} and {}", q.text(), k.text(),
           call.inputs[2].text());
    expect_shape(call, 1, {q.shape[0], k.shape[1], k.shape[2], q.shape[3]});
    expect_groups(q.shape[1], k.shape[1]);
    expect_shape(call, 2, k.shape);
    expect_dtype(call, 3, DType::i32);
    expect_shape(call, 3,
                 call.inputs[3].shape.rank() == 1 ? Shape{q.shape[2]} : Shape{q.shape[0], q.shape[2]});
    return {q};
}

/// The query at position p sees the keys 0 to p of those that are kept: softmax(scale q k^T) v of these.
std::vector<Tensor> kept_attention_definition(const DefinitionCall& call) {
    const Tensor q = as_f32(call.inputs[0]), k = as_f32(call.inputs[1]), v = as_f32(call.inputs[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    const Tensor scores = scores_of(q, k, call.attributes.number("scale"));
    const Tensor positions = call.inputs[3];
    const Shape to_rows = positions.rank() == 1 ? Shape{T, 1} : Shape{q.dim(0), 1, T, 1};
    const Tensor visible = less_equal(iota(call.graph, {T, S}, 1), reshape(positions, to_rows));
    const Tensor hidden = constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype());
    return {cast(weighted(softmax(select(visible, scores, hidden)), v), call.inputs[0].dtype())};
}

/// As if every query saw every key: which it sees is known when it runs.
std::int64_t kept_attention_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes&) {
    const Shape& q = inputs[0].shape;
    return q[0] * q[1] * q[2] * inputs[1].shape[2] * (4 * q[3] + 14);
}

}  // namespace

std::span<const Op> attention_ops() {
    static const std::vector<Op> rows = {
        {.name = "attention",
         .least_inputs = 1,
         .most_inputs = 3,
         .types = attention_types,
         .gradient = attention_gradient,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::opaque,
         .flops = attention_flops,
         .definition = attention_definition},
        {.name = "attention_grad",
         .least_inputs = 4,
         .most_inputs = 6,
         .types = attention_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::opaque,
         .flops = attention_grad_flops,
         .definition = attention_grad_definition},
        {.name = "kept_attention",
         .least_inputs = 4,
         .most_inputs = 4,
         .types = kept_attention_types,
         .no_gradient = "keys and values are kept for inference",
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::opaque,
         .flops = kept_attention_flops,
         .definition = kept_attention_definition},
    };
    return rows;
}

}  // namespace mantissa
