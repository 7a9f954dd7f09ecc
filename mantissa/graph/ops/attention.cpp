// Attention over the last two axes, softmax(f(scale q k^T)) v, and its gradient (Vaswani et al. 2017); f is
// the identity, or the score of graph/attention_score.h.
#include <algorithm>
#include <limits>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/ops/rules.h"
#include "mantissa/graph/visible_pairs.h"

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

/// Expects the tensors of queries, keys and values, the score's operands, and so many others.
void expect_tensors(const OpCall& call, const AttentionLayout& layout, const AttentionScore& score,
                    std::size_t others) {
    const std::size_t wanted = layout.operands.size() + score.operands.size() + others;
    expect(call.inputs.size() == wanted, "expected {} operands, got {}", wanted, call.inputs.size());
}

std::vector<Type> attention_types(const OpCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const AttentionScore score = attention_score(call.attributes);
    expect_tensors(call, layout, score, 0);
    const AttentionExtents e = expect_attention_operands(call, 0, layout);
    const DType dtype = call.inputs[0].dtype;
    expect_score(score, dtype, e, call.inputs.subspan(layout.operands.size()));
    return {result_type(dtype, layout, e), log_sum_exp_type(dtype, e)};
}

/// x, whose axes are `from`, with its axes in the order `to`.
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

/// bool [T, S]: the last query sees the last key, so query i sees keys up to i + S - T.
Tensor causal_pairs(Graph& graph, std::int64_t T, std::int64_t S) {
    return less_equal(iota(graph, {T, S}, 1), iota(graph, {T, S}, 0) + static_cast<double>(S - T));
}

struct Weights {
    Tensor weights;      // [B, H, T, S]
    Tensor log_sum_exp;  // [B, H, T, 1]
};

/// Softmax over the keys. The row of a query that sees no key weighs nothing, and its log-sum-exp is
/// -infinity: neither that nor its gradient may meet infinity - infinity or 0 / 0.
Weights weights_of_seen(const Tensor& scores) {
    Graph& graph = scores.graph();
    const auto number = [&](double value) { return constant(graph, value, scores.dtype()); };
    const Tensor highest = stop_gradient(max(scores, {-1}, KeepAxes::yes));
    const Tensor none = equal(highest, number(-std::numeric_limits<double>::infinity()));
    const Tensor shift = select(none, number(0), highest);
    const Tensor total = sum(exp(scores - shift), {-1}, KeepAxes::yes);
    const Tensor log_sum_exp = select(none, number(-std::numeric_limits<double>::infinity()),
                                      log(select(none, number(1), total)) + shift);
    // A score of -infinity less any number, here 0, is -infinity.
    return {exp(scores - select(none, number(0), log_sum_exp)), log_sum_exp};
}

/// The tensors of q, k, v, and the operands of the score -> o, log-sum-exp [B, H, T].
std::vector<Tensor> attention_definition(const DefinitionCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const AttentionScore score = attention_score(call.attributes);
    const std::vector<Tensor> heads = heads_of(layout, call.inputs);
    const Tensor q = as_f32(heads[0]), k = as_f32(heads[1]), v = as_f32(heads[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    const bool causal = call.attributes.flag("causal");
    Tensor scores = scores_of(q, k, call.attributes.number("scale"));
    const Tensor hidden = causal || !score.plain()
                              ? constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype())
                              : Tensor{};
    Weights softmax;
    if (score.plain()) {
        if (causal) scores = select(causal_pairs(call.graph, T, S), scores, hidden);
        const Tensor highest = stop_gradient(max(scores, {-1}, KeepAxes::yes));
        softmax.log_sum_exp = log(sum(exp(scores - highest), {-1}, KeepAxes::yes)) + highest;
        softmax.weights = exp(scores - softmax.log_sum_exp);
    } else {
        const AttentionExtents e{q.dim(0), q.dim(1), T, S, q.dim(3), k.dim(1)};
        const ScoredPairs pairs = scored_pairs(score, scores, call.inputs.subspan(layout.operands.size()), e);
        Tensor visible = pairs.visible;
        if (causal) {
            const Tensor shown = causal_pairs(call.graph, T, S);
            visible = visible ? logical_and(visible, shown) : shown;
        }
        softmax = weights_of_seen(visible ? select(visible, pairs.score, hidden) : pairs.score);
        if (pairs.multiplier) softmax.weights = softmax.weights * pairs.multiplier;
    }
    const Tensor o = cast(weighted(softmax.weights, v), call.inputs[0].dtype());
    return {reordered(o, plain_attention_axes, layout.result),
            reshape(softmax.log_sum_exp, {q.dim(0), q.dim(1), T})};
}

bool takes_lse_gradient(const Attributes& attributes) {
    return attributes.has("lse_gradient") && attributes.flag("lse_gradient");
}

std::vector<Tensor> attention_gradient(const GradientCall& c) {
    const std::size_t tensors = attention_layout(c.attributes).operands.size();
    Attributes attributes = c.attributes;
    std::vector<std::int64_t> asked;
    for (std::size_t i = tensors; i < c.inputs.size(); ++i)
        asked.push_back(c.wanted[i] && is_floating(c.inputs[i].dtype()) ? 1 : 0);
    if (std::ranges::count(asked, 1) > 0) attributes = attributes.with("score_gradients", asked);
    if (c.cotangents[1]) attributes = attributes.with("lse_gradient", true);
    Tensor d_o = c.cotangents[0];
    if (!d_o) d_o = broadcast_to(constant(c.graph, 0.0, c.outputs[0].dtype()), c.outputs[0].shape());
    std::vector<Tensor> operands{d_o};
    operands.insert(operands.end(), c.inputs.begin(), c.inputs.end());
    operands.insert(operands.end(), c.outputs.begin(), c.outputs.end());
    if (c.cotangents[1]) operands.push_back(c.cotangents[1]);
    std::vector<Tensor> gradients = call(c.graph, "attention_grad", operands, attributes);
    for (std::size_t i = 0; i < asked.size(); ++i)
        if (asked[i] == 0)
            gradients.insert(gradients.begin() + static_cast<std::ptrdiff_t>(tensors + i), Tensor{});
    return gradients;
}

/// Operands: do, the tensors of q, k, v, the operands of the score, then o and the log-sum-exp, and the
/// log-sum-exp's gradient where it is taken. Results: the gradient of each tensor, and of each operand that
/// is asked for, stored as the tensor or operand is.
std::vector<Type> attention_grad_types(const OpCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const AttentionScore score = attention_score(call.attributes);
    const bool of_lse = takes_lse_gradient(call.attributes);
    expect_tensors(call, layout, score, of_lse ? 4 : 3);
    const AttentionExtents e = expect_attention_operands(call, 1, layout);
    const DType dtype = call.inputs[1].dtype;
    const std::size_t first = 1 + layout.operands.size(), o_at = first + score.operands.size();
    const std::span<const Type> of_score = call.inputs.subspan(first, score.operands.size());
    expect_score(score, dtype, e, of_score);
    const Type result = result_type(dtype, layout, e);
    for (const std::size_t like_o : {std::size_t{0}, o_at})
        expect(call.inputs[like_o] == result, "operand {} must be {}, got {}", like_o, result.text(),
               call.inputs[like_o].text());
    const Type lse = log_sum_exp_type(dtype, e);
    for (std::size_t at = o_at + 1; at < call.inputs.size(); ++at)
        expect(call.inputs[at] == lse, "operand {} must be {}, got {}", at, lse.text(),
               call.inputs[at].text());
    std::vector<Type> types(call.inputs.begin() + 1,
                            call.inputs.begin() + static_cast<std::ptrdiff_t>(first));
    const std::vector<bool> asked = asked_score_gradients(call.attributes, of_score.size());
    for (std::size_t i = 0; i < asked.size(); ++i) {
        expect(!asked[i] || is_floating(of_score[i].dtype), "operand {} of the score, {}, has no gradient", i,
               of_score[i].text());
        if (asked[i]) types.push_back(of_score[i]);
    }
    return types;
}

/// A kernel reads o and the log-sum-exp instead of the scores; the definition computes both again.
std::vector<Tensor> attention_grad_definition(const DefinitionCall& call) {
    const AttentionLayout layout = attention_layout(call.attributes);
    const AttentionScore score = attention_score(call.attributes);
    const std::size_t first = 1 + layout.operands.size(), o_at = first + score.operands.size();
    std::vector<Tensor> inputs = heads_of(layout, call.inputs.subspan(1, layout.operands.size()));
    for (std::size_t i = first; i < o_at; ++i) inputs.push_back(call.inputs[i]);
    const Tensor d_o = reordered(call.inputs[0], layout.result, plain_attention_axes);
    const Tensor o = reordered(call.inputs[o_at], layout.result, plain_attention_axes);
    const Tensor d_lse = takes_lse_gradient(call.attributes) ? call.inputs[o_at + 2] : Tensor{};
    const Attributes plain =
        with_layout(call.attributes, {}).without("score_gradients").without("lse_gradient");
    std::vector<Tensor> gradients = differentiate_definition({.op = "attention",
                                                              .inputs = inputs,
                                                              .cotangents = {d_o, d_lse},
                                                              .saved = {{0, o}, {1, call.inputs[o_at + 1]}}},
                                                             call.graph, plain);
    for (std::size_t i = 0; i < gradients.size(); ++i)  // of operands that the score does not read
        if (const Type& type = inputs[i].type(); !gradients[i] && is_floating(type.dtype))
            gradients[i] = broadcast_to(constant(call.graph, 0.0, type.dtype), type.shape);
    std::vector<Tensor> stored = stored_as(layout, gradients);
    const std::vector<bool> asked = asked_score_gradients(call.attributes, score.operands.size());
    for (std::size_t i = 0; i < asked.size(); ++i)
        if (asked[i]) stored.push_back(gradients[3 + i]);
    return stored;
}

/// FLOPs of a pair in the score's body; its gradient takes it twice.
std::int64_t score_flops(const AttentionScore& score, const AttentionExtents& e, std::int64_t pairs) {
    if (score.plain()) return 0;
    const Graph& body = score.body->graph();
    const std::int64_t all = e.sequences * e.heads * e.queries * e.keys;
    std::int64_t flops = 0;
    for (NodeId id = 0; id < body.end(); ++id) {
        const Node& node = body.node(id);
        flops += node.op->cost(body.input_types(node), node.outputs, node.attributes).flops;
    }
    return all == 0 ? 0 : flops / all * pairs;
}

/// Two products of D multiply-adds a visible pair, a softmax of 14, and the score.
std::int64_t attention_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    const AttentionExtents e = attention_extents(attention_layout(a), inputs);
    const AttentionScore score = attention_score(a);
    const std::int64_t pairs = visible_pairs(score, a.flag("causal"), e);
    return pairs * (4 * e.head_size + 14) + score_flops(score, e, pairs);
}

/// Five products: the scores once more, the gradients of the weights, of q, k and v; and an exponential.
std::int64_t attention_grad_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    const AttentionExtents e = attention_extents(attention_layout(a), inputs.subspan(1));
    const AttentionScore score = attention_score(a);
    const std::int64_t pairs = visible_pairs(score, a.flag("causal"), e);
    return pairs * (10 * e.head_size + 14) + 2 * score_flops(score, e, pairs);
}

/// Operands of the score keep the formats that the model made them in.
std::size_t attention_lowered(const Attributes& attributes) {
    return attention_layout(attributes).operands.size();
}

/// q [B, H, T, D], k and v [B, G, S, D], positions i32 [T], or [B, T] where sequences stand at others.
std::vector<Type> cached_attention_types(const OpCall& call) {
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
    if (call.attributes.has("window"))
        expect(call.attributes.integer("window") >= 1, "a window is of one key or more, got {}",
               call.attributes.integer("window"));
    if (call.attributes.has("cap"))
        expect(call.attributes.number("cap") > 0, "a cap of scores is above 0, got {}",
               call.attributes.number("cap"));
    return {q};
}

/// The query at position p sees the kept keys 0 to p, or the last `window` of them: softmax(scale q k^T) v
/// over these keys, with scores x as c tanh(x / c) where `cap` is c.
std::vector<Tensor> cached_attention_definition(const DefinitionCall& call) {
    const Tensor q = as_f32(call.inputs[0]), k = as_f32(call.inputs[1]), v = as_f32(call.inputs[2]);
    const std::int64_t T = q.dim(2), S = k.dim(2);
    Tensor scores = scores_of(q, k, call.attributes.number("scale"));
    if (call.attributes.has("cap")) {
        const double cap = call.attributes.number("cap");
        scores = tanh(scores * (1 / cap)) * cap;
    }
    const Tensor positions = call.inputs[3];
    const Shape to_rows = positions.rank() == 1 ? Shape{T, 1} : Shape{q.dim(0), 1, T, 1};
    const Tensor keys = iota(call.graph, {T, S}, 1), last = reshape(positions, to_rows);
    Tensor visible = less_equal(keys, last);
    if (call.attributes.has("window")) {
        const auto window = static_cast<double>(call.attributes.integer("window"));
        visible = logical_and(visible, less(last - window, keys));
    }
    const Tensor hidden = constant(call.graph, -std::numeric_limits<double>::infinity(), scores.dtype());
    return {cast(weighted(softmax(select(visible, scores, hidden)), v), call.inputs[0].dtype())};
}

/// As if every query saw every key: the visible keys are known only in the run.
std::int64_t cached_attention_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes&) {
    const Shape& q = inputs[0].shape;
    return q[0] * q[1] * q[2] * inputs[1].shape[2] * (4 * q[3] + 14);
}

}  // namespace

std::span<const Op> attention_ops() {
    static const std::vector<Op> rows = {
        {.name = "attention",
         .max_inputs = 1 << 16,
         .types = attention_types,
         .gradient = attention_gradient,
         .autocast = AutocastClass::lower,
         .lowered = attention_lowered,
         .flops = attention_flops,
         .definition = attention_definition},
        {.name = "attention_grad",
         .min_inputs = 4,
         .max_inputs = 1 << 16,
         .types = attention_grad_types,
         .no_gradient = no_second_derivative,
         .autocast = AutocastClass::lower,
         .flops = attention_grad_flops,
         .definition = attention_grad_definition},
        {.name = "cached_attention",
         .min_inputs = 4,
         .types = cached_attention_types,
         .no_gradient = "keys and values are kept for inference",
         .autocast = AutocastClass::lower,
         .flops = cached_attention_flops,
         .definition = cached_attention_definition},
    };
    return rows;
}

}  // namespace mantissa
