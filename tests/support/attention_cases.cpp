#include "tests/support/attention_cases.h"

#include <algorithm>
#include <cmath>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"

namespace mantissa::testing {

OpCase attention_case(const char* name, Shape q, Keys of, bool causal) {
    const std::int64_t keys = of.count;
    const Shape k{q[0], of.heads == 0 ? q[1] : of.heads, keys, q[3]};
    const Attributes attributes{{"causal", causal}, {"scale", 1.0 / std::sqrt(static_cast<double>(q[3]))}};
    return {"attention",
            fmt::format("attention {}", name),
            {f32(q), f32(k), f32(k)},
            [=](Graph& g, In x) { return call(g, "attention", x, attributes); },
            // Weights may be rounded; their sum is 1.
            {16, static_cast<double>(keys + q[3]), 1}};
}

OpCase attention_grad_case(const char* name, Shape q, Keys of, bool causal) {
    const std::int64_t keys = of.count, group = of.heads == 0 ? 1 : q[1] / of.heads;
    OpCase test = attention_case(name, q, of, causal);
    test.op = "attention_grad";
    test.name = fmt::format("attention_grad {}", name);
    test.operands.insert(test.operands.begin(), f32(q));
    const auto forward = test.build;
    test.build = [=](Graph& g, In x) {
        const auto y = forward(g, {x[1], x[2], x[3]});
        const Attributes& attributes = g.node(y[0].value().node).attributes;
        return call(g, "attention_grad", std::vector{x[0], x[1], x[2], x[3], y[0], y[1]}, attributes);
    };
    // The stored o is part of sum(do o), of D terms, which each element adds with weights of sum 1. The
    // gradients of scores may be rounded, as weights are.
    test.error = {16, 3 * static_cast<double>(keys + group * q[2] + q[3]),
                  1 + std::sqrt(static_cast<double>(q[3]))};
    return test;
}

namespace {

/// FlashAttention's layout, and other orders: B, H, T, D from tensors of these words.
OpCase laid_out_attention_case(const char* op, const char* operands, const char* result, bool causal) {
    const std::int64_t B = 2, H = 3, T = 5, D = 6;
    const AttentionLayout layout = attention_layout({{"operands", std::string(operands)}});
    std::vector<Operand> tensors;
    for (const AttentionTensor& tensor : layout.operands)
        tensors.push_back(
            f32(stored_shape(tensor.axes, {B, H, T, D}, static_cast<std::int64_t>(tensor.holds.size()))));
    const Attributes attributes{{"causal", causal},
                                {"operands", std::string(operands)},
                                {"result", std::string(result)},
                                {"scale", 0.5}};
    OpCase test = std::string_view(op) == "attention" ? attention_case("", {B, H, T, D}, {T}, causal)
                                                      : attention_grad_case("", {B, H, T, D}, {T}, causal);
    test.name = fmt::format("{} of {} to {}", op, operands, result);
    const auto forward = [attributes](Graph& g, In x) { return call(g, "attention", x, attributes); };
    test.operands = tensors;
    test.build = forward;
    if (test.op == "attention") return test;
    test.operands.insert(test.operands.begin(), f32(stored_shape(result, {B, H, T, D})));
    test.build = [=](Graph& g, In x) {
        std::vector<Tensor> all(x.begin(), x.end());
        const auto y = forward(g, {x.begin() + 1, x.end()});
        all.insert(all.end(), y.begin(), y.end());
        return call(g, "attention_grad", all, attributes);
    };
    return test;
}

/// A score over B = 2, H = 3, T = 5 and S = 7: its operands, their axes, and its function of the scaled
/// product and the operands.
struct ScoreCase {
    const char* name;
    std::vector<Operand> operands;
    std::vector<std::string> axes;
    bool causal;
    std::function<void(Graph& body, Tensor s, In x)> build;  ///< adds the results
    bool all_see = true;  ///< else a log-sum-exp is -infinity, and has no difference quotient
};

/// The attributes of this attention for tensors of this type.
Attributes score_attributes(const ScoreCase& test, DType dtype, In operands) {
    const AttentionExtents e{2, 3, 5, 7, 4, 3};
    Graph body;
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor s(body, body.add_input("s", {wide, {2, 3, 5, 7}}));
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < operands.size(); ++i)
        inputs.emplace_back(body,
                            body.add_input(fmt::format("x{}", i),
                                           {operands[i].dtype(), score_operand_shape(test.axes[i], e)}));
    test.build(body, s, inputs);
    return with_score({{"causal", test.causal}, {"scale", 0.5}}, {.body = Body(body), .operands = test.axes});
}

std::vector<ScoreCase> score_cases() {
    const auto wide = [](Tensor x, Tensor s) { return cast(x, s.dtype()); };
    const auto result = [](Graph& body, const char* name, Tensor x) { body.add_result(name, x.value()); };
    const auto at = [](Graph& body, int axis) { return iota(body, {2, 3, 5, 7}, axis); };
    std::vector<ScoreCase> cases;
    cases.push_back(
        {"capped, with a learned scale by head", {f32({3})}, {"h"}, true, [=](Graph& body, Tensor s, In x) {
             result(body, "score", tanh(s * wide(x[0], s) / 2.0) * 2.0);
         }});
    cases.push_back({"in a window", {}, {}, true, [=](Graph& body, Tensor s, In) {
                         result(body, "score", s);
                         result(body, "visible", less(at(body, 2), at(body, 3) + 1.0));
                     }});
    cases.push_back(
        {"with a bias for each pair", {f32({3, 5, 7})}, {"hts"}, false, [=](Graph& body, Tensor s, In x) {
             result(body, "score", s + wide(x[0], s));
         }});
    cases.push_back(
        {"with a bias stored keys first", {f32({7, 2, 5})}, {"sbt"}, false, [=](Graph& body, Tensor s, In x) {
             result(body, "score", s * wide(x[0], s));
         }});
    cases.push_back({"of documents",
                     {ids({2, 5}, 2), ids({2, 7}, 2)},
                     {"bt", "bs"},
                     false,
                     [=](Graph& body, Tensor s, In x) {
                         result(body, "score", s);
                         result(body, "visible", equal(x[0], x[1]));
                     }});
    // A finite mask as match_attention writes it: x0 marks the queries that see a key, x1 the keys that are
    // not padding.
    cases.push_back({"of finite numbers that hide all keys of some queries",
                     {ids({2, 5}, 2), ids({2, 7}, 2)},
                     {"bt", "bs"},
                     false,
                     [=](Graph& body, Tensor s, In x) {
                         const Tensor sees_none = less(cast(x[0], s.dtype()), constant(body, 0.5, s.dtype()));
                         const Tensor seen = cast(x[1], DType::boolean);
                         const Tensor mask =
                             select(seen, constant(body, 0, s.dtype()), constant(body, -2, s.dtype()));
                         const Tensor yes = constant(body, 1, DType::boolean);
                         result(body, "score", select(sees_none, s + mask + 2.0, s));
                         result(body, "visible", select(sees_none, yes, seen));
                     },
                     false});
    cases.push_back(
        {"with a table of distances",
         {f32({3, 11}), f32({11})},
         {"hr", "r"},
         true,
         [=](Graph& body, Tensor s, In x) { result(body, "score", s + wide(x[0], s) * wide(x[1], s)); }});
    cases.push_back({"with weights that are dropped",
                     {f32({}), counter(), counter()},
                     {"", "", ""},
                     false,
                     [=](Graph& body, Tensor s, In x) {
                         const Tensor drawn =
                             random_uniform(reshape(x[1], {}), reshape(x[2], {}), 7, s.shape());
                         const Tensor kept = less(constant(body, 0.25), drawn);
                         const Tensor gain = constant(body, 1 / 0.75, s.dtype());
                         result(body, "score", s + wide(x[0], s) * s);
                         result(body, "multiplier", select(kept, gain, constant(body, 0, s.dtype())));
                     }});
    cases.push_back(
        {"in which a query sees nothing",
         {f32({5})},
         {"t"},
         false,
         [=](Graph& body, Tensor s, In x) {
             const Tensor third = equal(at(body, 2), constant(body, 2, DType::i32));
             const Tensor hidden = constant(body, -INFINITY, s.dtype());
             result(body, "score", select(less_equal(at(body, 3), at(body, 2)), s * wide(x[0], s), hidden));
             result(body, "visible",
                    select(third, constant(body, 0, DType::boolean), constant(body, 1, DType::boolean)));
         },
         false});
    return cases;
}

OpCase attention_of_score(const ScoreCase& test) {
    OpCase made{"attention",
                fmt::format("attention {}", test.name),
                {f32({2, 3, 5, 4}), f32({2, 3, 7, 4}), f32({2, 3, 7, 4})},
                [test](Graph& g, In x) {
                    const std::vector<Tensor> operands(x.begin() + 3, x.end());
                    auto y = call(g, "attention", x, score_attributes(test, x[0].dtype(), operands));
                    if (!test.all_see) y.pop_back();
                    return y;
                },
                {16, 24, 1}};
    made.operands.insert(made.operands.end(), test.operands.begin(), test.operands.end());
    return made;
}

/// The gradient, with the log-sum-exp's gradient beside the result's.
OpCase attention_grad_of_score(const ScoreCase& test) {
    ScoreCase whole = test;
    whole.all_see = true;
    OpCase made = attention_of_score(whole);
    made.op = "attention_grad";
    made.name = fmt::format("attention_grad {}", test.name);
    made.operands.insert(made.operands.begin(), {f32({2, 3, 5}), f32({2, 3, 5, 4})});
    const auto forward = made.build;
    made.build = [=](Graph& g, In x) {
        const std::vector<Tensor> inputs(x.begin() + 2, x.end());
        const auto y = forward(g, inputs);
        Attributes attributes = g.node(y[0].value().node).attributes.with("lse_gradient", true);
        std::vector<std::int64_t> asked;
        for (std::size_t i = 3; i < inputs.size(); ++i) asked.push_back(is_floating(inputs[i].dtype()));
        if (std::ranges::count(asked, 1) > 0) attributes = attributes.with("score_gradients", asked);
        std::vector<Tensor> all{x[1]};
        all.insert(all.end(), inputs.begin(), inputs.end());
        // FP32, for every type of the tensors.
        all.insert(all.end(), {y[0], y[1], cast(x[0], y[1].dtype())});
        return call(g, "attention_grad", all, attributes);
    };
    made.error = {16, 3 * 24, 4};
    // The gradient of a single number sums the effect of o's rounding on each of the 30 rows of weights.
    if (std::ranges::count(test.axes, "") > 0) made.error = {16, 3 * 24, 4 * std::sqrt(30.0), true};
    return made;
}

/// Attention as the builder makes it: q, k and v of these shapes. `sums`: as in attention_case.
OpCase built_attention_case(const char* name, const std::vector<Shape>& shapes, AttentionOptions options) {
    const double keys = static_cast<double>(shapes[1][-2] + std::max(shapes[0][-1], shapes[2][-1]));
    return {"attention",
            fmt::format("attention {}", name),
            {f32(shapes[0]), f32(shapes[1]), f32(shapes[2])},
            [=](Graph&, In x) { return std::vector{attention(x[0], x[1], x[2], options)}; },
            // Weights of sum 1 may be rounded, and values cancel: they are larger than the results.
            {16, keys, 2}};
}

std::vector<OpCase> built_attention_cases() {
    const auto first = AttentionCorner::first, last = AttentionCorner::last;
    const AttentionOptions from_first{.causal = true, .corner = first},
        to_last{.causal = true, .corner = last};
    return {
        built_attention_case("from the first key, more keys", {{2, 3, 4, 5}, {2, 3, 7, 5}, {2, 3, 7, 5}},
                             from_first),
        built_attention_case("from the first key, fewer keys", {{2, 4, 7, 5}, {2, 2, 3, 5}, {2, 2, 3, 5}},
                             from_first),
        built_attention_case("from the first key, as many", {{1, 2, 5, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}},
                             from_first),
        built_attention_case("to the last key, fewer keys", {{2, 3, 7, 5}, {2, 3, 4, 5}, {2, 3, 4, 5}},
                             to_last),
        built_attention_case("to the one key", {{1, 1, 3, 4}, {1, 1, 1, 4}, {1, 1, 1, 4}}, to_last),
        built_attention_case("of two axes", {{5, 4}, {7, 4}, {7, 4}}, {}),
        built_attention_case("of three axes", {{3, 5, 4}, {3, 6, 4}, {3, 6, 4}}, to_last),
        built_attention_case("of six axes", {{2, 1, 3, 4, 5, 4}, {2, 1, 3, 2, 5, 4}, {2, 1, 3, 2, 5, 4}},
                             from_first),
        built_attention_case("of wider values", {{2, 2, 5, 4}, {2, 2, 6, 4}, {2, 2, 6, 7}}, to_last),
        built_attention_case("of narrower values", {{2, 2, 5, 7}, {2, 1, 6, 7}, {2, 1, 6, 3}}, {}),
    };
}

}  // namespace

std::vector<OpCase> attention_cases() {
    std::vector<OpCase> cases = built_attention_cases();
    for (const auto& make : {attention_case, attention_grad_case}) {
        cases.push_back(make("to all keys", {2, 2, 3, 5}, {7}, false));
        cases.push_back(make("causal", {1, 3, 5, 4}, {5}, true));
        cases.push_back(make("causal with keys before the queries", {2, 1, 3, 6}, {8}, true));
        cases.push_back(make("of one token", {1, 1, 1, 1}, {1}, true));
        cases.push_back(make("of heads that share keys", {2, 6, 5, 4}, {5, 2}, true));
        cases.push_back(make("of heads that all share their keys", {2, 3, 4, 5}, {7, 1}, false));
    }
    for (const char* const op : {"attention", "attention_grad"}) {
        cases.push_back(laid_out_attention_case(op, "qkv:btphd", "bthd", true));
        cases.push_back(laid_out_attention_case(op, "q:bthd,k:tbhd,v:hbtd", "tbhd", false));
        cases.push_back(laid_out_attention_case(op, "vq:pbhtd,k:bhtd", "bhtd", true));
        cases.push_back(laid_out_attention_case(op, "q:bthd,kv:bthpd", "hbtd", false));
    }
    for (const ScoreCase& test : score_cases()) {
        cases.push_back(attention_of_score(test));
        cases.push_back(attention_grad_of_score(test));
    }
    // Errors as attention's; each query sees a part of the keys.
    for (const std::int64_t queries : {1, 3, 9})
        cases.push_back(
            {"cached_attention",
             fmt::format("cached_attention of {}", queries),
             {f32({2, 3, queries, 5}), f32({2, 3, 11, 5}), f32({2, 3, 11, 5}), ids({queries}, 11)},
             [](Graph& g, In x) {
                 return call(g, "cached_attention", x, {{"scale", 0.5}});
             },
             {16, 60, 3}});
    for (const std::int64_t queries : {1, 9})
        cases.push_back(
            {"cached_attention",
             fmt::format("cached_attention of {}, sequences at places of their own", queries),
             {f32({3, 4, queries, 5}), f32({3, 2, 11, 5}), f32({3, 2, 11, 5}), ids({3, queries}, 11)},
             [](Graph& g, In x) {
                 return call(g, "cached_attention", x, {{"scale", 0.5}});
             },
             {16, 60, 3}});
    for (const std::int64_t window : {1, 4, 80})
        for (const Shape& positions : {Shape{9}, Shape{2, 9}})
            cases.push_back(
                {"cached_attention",
                 fmt::format("cached_attention of a window of {}, positions {}", window, positions.text()),
                 {f32({2, 4, 9, 5}), f32({2, 2, 70, 5}), f32({2, 2, 70, 5}), ids(positions, 70)},
                 [=](Graph& g, In x) {
                     return call(g, "cached_attention", x, {{"scale", 0.5}, {"window", window}});
                 },
                 {16, 60, 3}});
    for (const std::int64_t window : {11, 12})
        cases.push_back(
            {"cached_attention",
             fmt::format("cached_attention of a prompt and a window of {}", window),
             {f32({1, 4, 9, 5}), f32({1, 2, 70, 5}), f32({1, 2, 70, 5})},
             [=](Graph& g, In x) {
                 std::vector<Tensor> operands(x.begin(), x.end());
                 operands.push_back(iota(g, {9}, 0) + 3.0);
                 return call(g, "cached_attention", operands, {{"scale", 0.5}, {"window", window}});
             },
             {16, 60, 3}});
    for (const std::int64_t queries : {1, 9})
        cases.push_back(
            {"cached_attention",
             fmt::format("cached_attention of {} with capped scores", queries),
             {f32({1, 4, queries, 5}), f32({1, 2, 70, 5}), f32({1, 2, 70, 5}), ids({queries}, 70)},
             [](Graph& g, In x) {
                 return call(g, "cached_attention", x, {{"scale", 4.0}, {"cap", 1.5}, {"window", 33}});
             },
             {16, 60, 3}});
    // The queries of a prompt: attention's.
    cases.push_back({"cached_attention",
                     "cached_attention of a prompt",
                     {f32({1, 4, 9, 5}), f32({1, 2, 70, 5}), f32({1, 2, 70, 5})},
                     [](Graph& g, In x) {
                         std::vector<Tensor> operands(x.begin(), x.end());
                         operands.push_back(iota(g, {9}, 0) + 3.0);
                         return call(g, "cached_attention", operands, {{"scale", 0.5}});
                     },
                     {16, 60, 3}});
    for (const std::int64_t queries : {2, 9})
        cases.push_back(
            {"cached_attention",
             fmt::format("cached_attention of {} in heads that share keys", queries),
             {f32({2, 6, queries, 5}), f32({2, 2, 11, 5}), f32({2, 2, 11, 5}), ids({queries}, 11)},
             [](Graph& g, In x) {
                 return call(g, "cached_attention", x, {{"scale", 0.5}});
             },
             {16, 60, 3}});
    return cases;
}

}  // namespace mantissa::testing
