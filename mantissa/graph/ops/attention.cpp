// Attention over the last two axes, softmax(scale q k^T) v, and its gradient (Vaswani et al. 2017).
#include <limits>

#include "mantissa/graph/gradient.h"
#include "mantissa/graph/ops/rules.h"

namespace mantissa {

namespace {

using namespace rules;

/// The type of the log-sum-exp: FP32, or FP64 where the tensors are.
Type log_sum_exp_type(const Type& q) {
    return {q.dtype == DType::f64 ? DType::f64 : DType::f32, {q.shape[0], q.shape[1], q.shape[2]}};
}

/// q [B, H, T, D], k and v [B, H, S, D], at these places among the operands.
void expect_attention_operands(const OpCall& call, std::size_t q_at, std::size_t k_at, std::size_t v_at) {
    const Type &q = call.inputs[q_at], &k = call.inputs[k_at];
    expect_floating(call, q_at);
    expect(q.shape.rank() == 4, "queries must be [B, H, T, D], got {}", q.text());
    expect(k.dtype == q.dtype && call.inputs[v_at].dtype == q.dtype,
           "queries, keys and values must have one type, got {}, {} and {}", q.text(), k.text(),
           call.inputs[v_at].text());
    expect(k.shape.rank() == 4, "keys must be [B, H, T, D], got {}", k.text());
    expect_shape(call, k_at, {q.shape[0], q.shape[1], k.shape[2], q.shape[3]});
    expect_shape(call, v_at, k.shape);
    expect(k.shape[2] >= 1, "there must be a key to attend to, got {}", k.text());
    expect(!call.attributes.flag("causal") || k.shape[2] >= q.shape[2],
           "with a causal mask there must be a key for every query, got {} queries and {} keys", q.shape[2],
           k.shape[2]);
}

std::vector<Type> attention_types(const OpCall& call) {
    expect_attention_operands(call, 0, 1, 2);
    return {call.inputs[0], log_sum_exp_type(call.inputs[0])};
}

/// q, k, v -> o [B, H, T, D], log-sum-exp [B, H, T]. Causal: the last query sees the last key, so query i
/// sees keys up to i + S - T.
std::vector<Tensor> attention_definition(const DefinitionCall& call) {
    const Tensor q = as_f32(call.inputs[0]), k = as_f32(call.inputs[1]), v = as_f32(call.inputs[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    Tensor scores = matmul(q, k, {.transpose_b = true}) * call.attributes.number("scale");  // [B, H, T, S]
    if (call.attributes.flag("causal")) {
        const Tensor last = iota(call.graph, {T, S}, 0) + static_cast<double>(S - T);
        const Tensor hidden = constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype());
        scores = select(less_equal(iota(call.graph, {T, S}, 1), last), scores, hidden);
    }
    const Tensor highest = stop_gradient(max(scores, {-1}, KeepAxes::yes));
    const Tensor log_sum_exp = log(sum(exp(scores - highest), {-1}, KeepAxes::yes)) + highest;
    const Tensor weights = exp(scores - log_sum_exp);
    return {cast(matmul(weights, v), call.inputs[0].dtype()),
            reshape(log_sum_exp, log_sum_exp_type(call.inputs[0].type()).shape)};
}

std::vector<Tensor> attention_gradient(const GradientCall& c) {
    check(!c.cotangents[1], "the log-sum-exp of attention is not differentiated");
    return call(
        c.graph, "attention_grad",
        std::vector{c.cotangents[0], c.inputs[0], c.inputs[1], c.inputs[2], c.outputs[0], c.outputs[1]},
        c.attributes);
}

/// do, q, k, v, o, log-sum-exp -> dq, dk, dv.
std::vector<Type> attention_grad_types(const OpCall& call) {
    expect_attention_operands(call, 1, 2, 3);
    const Type& q = call.inputs[1];
    for (const std::size_t like_q : {0u, 4u})
        expect(call.inputs[like_q] == q, "operand {} must be {}, got {}", like_q, q.text(),
               call.inputs[like_q].text());
    expect(call.inputs[5] == log_sum_exp_type(q), "operand 5 must be {}, got {}", log_sum_exp_type(q).text(),
           call.inputs[5].text());
    return {q, call.inputs[2], call.inputs[3]};
}

/// A kernel reads o and the log-sum-exp instead of the scores; the definition computes both again.
std::vector<Tensor> attention_grad_definition(const DefinitionCall& call) {
    return differentiate_definition({.op = "attention",
                                     .inputs = {call.inputs[1], call.inputs[2], call.inputs[3]},
                                     .cotangents = {call.inputs[0], {}},
                                     .saved = {{0, call.inputs[4]}, {1, call.inputs[5]}}},
                                    call.graph, call.attributes);
}

/// Pairs of a query and a key that it sees.
std::int64_t visible_pairs(const Type& q, const Type& k, const Attributes& attributes) {
    const std::int64_t T = q.shape[2], S = k.shape[2];
    const std::int64_t pairs = attributes.flag("causal") ? T * (S - T) + T * (T + 1) / 2 : T * S;
    return q.shape[0] * q.shape[1] * pairs;
}

/// Two products of D multiply-adds a pair, and a softmax of 14.
std::int64_t attention_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    return visible_pairs(inputs[0], inputs[1], a) * (4 * inputs[0].shape[3] + 14);
}

/// Five products: the scores once more, the gradients of the weights, of q, k and v; and an exponential.
std::int64_t attention_grad_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    return visible_pairs(inputs[1], inputs[2], a) * (10 * inputs[1].shape[3] + 14);
}

/// q [B, H, T, D], k and v [B, H, S, D], positions i32 [T].
std::vector<Type> kept_attention_types(const OpCall& call) {
    const Type &q = call.inputs[0], &k = call.inputs[1];
    expect_floating(call, 0);
    expect(q.shape.rank() == 4 && k.shape.rank() == 4, "queries and keys must be [B, H, T, D], got {} and {}",
           q.text(), k.text());
    expect(k.dtype == q.dtype && call.inputs[2].dtype == q.dtype,
           "queries, keys and values must have one type, got {}, {} and {}", q.text(), k.text(),
           call.inputs[2].text());
    expect_shape(call, 1, {q.shape[0], q.shape[1], k.shape[2], q.shape[3]});
    expect_shape(call, 2, k.shape);
    expect_dtype(call, 3, DType::i32);
    expect_shape(call, 3, {q.shape[2]});
    return {q};
}

/// The query at position p sees the keys 0 to p of those that are kept: softmax(scale q k^T) v of these.
std::vector<Tensor> kept_attention_definition(const DefinitionCall& call) {
    const Tensor q = as_f32(call.inputs[0]), k = as_f32(call.inputs[1]), v = as_f32(call.inputs[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    const Tensor scores = matmul(q, k, {.transpose_b = true}) * call.attributes.number("scale");
    const Tensor visible = less_equal(iota(call.graph, {T, S}, 1), reshape(call.inputs[3], {T, 1}));
    const Tensor hidden = constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype());
    return {cast(matmul(softmax(select(visible, scores, hidden)), v), call.inputs[0].dtype())};
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
         .least_inputs = 3,
         .most_inputs = 3,
         .types = attention_types,
         .gradient = attention_gradient,
         .autocast = AutocastClass::lower,
         .fuser = FuserClass::opaque,
         .flops = attention_flops,
         .definition = attention_definition},
        {.name = "attention_grad",
         .least_inputs = 6,
         .most_inputs = 6,
         .types = attention_grad_types,
         .no_gradient = "second derivatives are not taken",
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
