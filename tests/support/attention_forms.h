// Attention with scores of every kind, over more than one block of queries and keys, as one graph with o, the
// log-sum-exp and every gradient: the test of each device.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "tests/support/kernel_errors.h"

namespace mantissa::testing::scoring {

/// An operand of a score: its axes, its values, and whether it needs a gradient.
struct Beside {
    std::string axes;
    DType dtype = DType::f32;
    std::function<double(std::size_t element)> value = {};  ///< none: normal numbers
    bool learned = false;
};

struct Form {
    std::string name;
    bool causal = true;
    std::vector<Beside> operands = {};
    std::function<void(Graph& body, Tensor s, In x)> build = {};  ///< none: plain scores
};

struct Sizes {
    AttentionExtents e;
    std::string text() const {
        return fmt::format("{} x {} heads over {}, {} x {} of {}", e.sequences, e.heads, e.key_heads,
                           e.queries, e.keys, e.head_size);
    }
};

inline Tensor at(Tensor s, int axis) { return iota(s.graph(), s.shape(), axis); }
inline void result(Graph& body, const char* name, Tensor x) { body.add_result(name, x.value()); }
inline Tensor whole(Graph& body, std::int64_t value) {
    return constant(body, static_cast<double>(value), DType::i32);
}
inline Tensor either(Tensor a, Tensor b) {
    const Tensor no = constant(a.graph(), 0, DType::boolean), yes = constant(a.graph(), 1, DType::boolean);
    const auto negated = [&](Tensor x) { return select(x, no, yes); };
    return negated(logical_and(negated(a), negated(b)));
}
/// The operand in the scores' own type.
inline Tensor wide(Tensor x) { return cast(x, DType::f32); }

inline Beside learned(const char* axes) { return {.axes = axes, .learned = true}; }
/// Documents of 37 positions; in a second sequence they begin at other positions.
inline Beside documents(const char* axes) {
    return {.axes = axes, .dtype = DType::i32, .value = [](std::size_t i) {
                return std::floor(static_cast<double>(i + 11) / 37);
            }};
}

inline Form window(std::int64_t keys) {
    return {.name = fmt::format("window of {}", keys), .build = [=](Graph& body, Tensor s, In) {
                result(body, "score", s);
                result(body, "visible", less(at(s, 2), at(s, 3) + static_cast<double>(keys)));
            }};
}

inline std::vector<Form> masked_forms() {
    std::vector<Form> forms;
    forms.push_back(window(40));
    forms.push_back(window(1));
    forms.push_back({.name = "prefix", .causal = false, .build = [](Graph& body, Tensor s, In) {
                         result(body, "score", s);
                         result(body, "visible",
                                either(less_equal(at(s, 3), at(s, 2)), less(at(s, 3), whole(body, 17))));
                     }});
    forms.push_back({.name = "documents",
                     .operands = {documents("bt"), documents("bs")},
                     .build = [](Graph& body, Tensor s, In x) {
                         result(body, "score", s);
                         result(body, "visible", equal(x[0], x[1]));
                     }});
    forms.push_back(
        {.name = "lengths, of which one is 0",
         .causal = false,
         .operands = {{.axes = "bh",
                       .dtype = DType::i32,
                       .value =
                           [](std::size_t i) { return i == 1 ? 0.0 : 50.0 + 3.0 * static_cast<double>(i); }}},
         .build = [](Graph& body, Tensor s, In x) {
             result(body, "score", s);
             result(body, "visible", less(at(s, 3), x[0]));
         }});
    forms.push_back(
        {.name = "a window of each head's own",
         .operands = {{.axes = "h",
                       .dtype = DType::i32,
                       .value = [](std::size_t i) { return 5.0 + 40.0 * static_cast<double>(i); }}},
         .build = [](Graph& body, Tensor s, In x) {
             result(body, "score", s);
             result(body, "visible", less(at(s, 2) - at(s, 3), x[0]));
         }});
    forms.push_back(
        {.name = "a dense mask of booleans",
         .causal = false,
         .operands = {{.axes = "ts",
                       .dtype = DType::boolean,
                       .value = [](std::size_t i) { return i % 7 == 3 || i % 11 == 0 ? 0.0 : 1.0; }}},
         .build = [](Graph& body, Tensor s, In x) {
             result(body, "score", s);
             result(body, "visible", x[0]);
         }});
    return forms;
}

inline std::vector<Form> function_forms() {
    std::vector<Form> forms;
    forms.push_back({.name = "capped",
                     .build = [](Graph& body, Tensor s, In) { result(body, "score", tanh(s * 0.5) * 2.0); }});
    forms.push_back(
        {.name = "linear biases", .operands = {learned("h")}, .build = [](Graph& body, Tensor s, In x) {
             const Tensor distance = cast(at(s, 3) - at(s, 2), DType::f32) * (1.0 / 64);
             result(body, "score", s + wide(x[0]) * distance);
         }});
    forms.push_back({.name = "a learned scale",
                     .operands = {learned("h")},
                     .build = [](Graph& body, Tensor s, In x) { result(body, "score", s * wide(x[0])); }});
    forms.push_back({.name = "tables of distances",
                     .causal = false,
                     .operands = {learned("hr"), learned("rb")},
                     .build = [](Graph& body, Tensor s, In x) {
                         result(body, "score", s + wide(x[0]) + wide(x[1]) * 0.25);
                     }});
    for (const char* const axes : {"ts", "hts", "bhts", "sbt", "bt", "hs", "t"})
        forms.push_back(
            {.name = std::string("a bias by ") + axes,
             .causal = std::string(axes) != "ts",
             .operands = {learned(axes)},
             .build = [](Graph& body, Tensor s, In x) { result(body, "score", s + wide(x[0]) * 0.5); }});
    forms.push_back(
        {.name = "dropped weights",
         .operands = {{.axes = "", .dtype = DType::i64, .value = [](std::size_t) { return 5.0; }},
                      {.axes = "", .dtype = DType::i64, .value = [](std::size_t) { return 3.0; }}},
         .build = [](Graph& body, Tensor s, In x) {
             const Tensor drawn = random_uniform(reshape(x[0], {}), reshape(x[1], {}), 9, s.shape());
             result(body, "score", s);
             result(body, "multiplier",
                    select(less(drawn, constant(body, 0.25)), constant(body, 0.0), constant(body, 1 / 0.75)));
         }});
    forms.push_back({.name = "all at once",
                     .operands = {learned("h"), learned("hr"), documents("bt"), documents("bs")},
                     .build = [](Graph& body, Tensor s, In x) {
                         result(body, "score", tanh(s * wide(x[0]) + wide(x[1])) * 3.0);
                         result(body, "visible",
                                logical_and(equal(x[2], x[3]), less(at(s, 2), at(s, 3) + 30.0)));
                     }});
    return forms;
}

enum class WithGradients : bool { no, yes };

/// One graph with o, the log-sum-exp, and all gradients of both.
struct Case {
    Graph graph;
    ReferenceFeed feed;

    Case(const Form& form, const Sizes& sizes, DType dtype, WithGradients gradients = WithGradients::yes) {
        const AttentionExtents& e = sizes.e;
        const Shape q{e.sequences, e.heads, e.queries, e.head_size};
        const Shape k{e.sequences, e.key_heads, e.keys, e.head_size};
        std::vector<Tensor> x{input("q", {dtype, q}), input("k", {dtype, k}), input("v", {dtype, k})};
        std::vector<Tensor> wrt = x;
        AttentionScore score;
        Graph body;
        const Tensor s(body, body.add_input("s", {DType::f32, {e.sequences, e.heads, e.queries, e.keys}}));
        std::vector<Tensor> beside;
        for (const Beside& operand : form.operands) {
            const std::string name = fmt::format("x{}", beside.size());
            const DType type = operand.dtype == DType::f32 ? dtype : operand.dtype;
            score.operands.push_back(operand.axes);
            beside.emplace_back(body, body.add_input(name, {type, score_operand_shape(operand.axes, e)}));
            x.push_back(input(name, {type, stored_score_operand(operand.axes, e)}, operand.value));
            if (operand.learned) wrt.push_back(x.back());
        }
        if (form.build) {
            form.build(body, s, beside);
            score.body = Body(body);
        }
        const double scale = 1 / std::sqrt(static_cast<double>(e.head_size));
        const Attributes attributes = with_score({{"causal", form.causal}, {"scale", scale}}, score);
        const std::vector<Tensor> y = call(graph, "attention", x, attributes);
        graph.add_result("o", y[0].value());
        graph.add_result("lse", y[1].value());
        if (gradients == WithGradients::no) return;
        const std::vector<Tensor> cotangents{input("do", y[0].type()), input("dlse", y[1].type())};
        for (const Tensor& gradient : backpropagate(graph, y, cotangents, wrt))
            graph.add_result(fmt::format("gradient {}", graph.results().size()), gradient.value());
    }

  private:
    Tensor input(const std::string& name, Type type, const std::function<double(std::size_t)>& value = {}) {
        std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
        const RandomStream random{.seed = 3, .operation = static_cast<std::uint32_t>(feed.size())};
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = value ? value(i) : static_cast<double>(random.normal(i));
        feed[name] = testing::loaded(testing::stored(values, type.dtype), type.dtype);
        return {graph, graph.add_input(name, type)};
    }
};

/// Errors as in tests/support/attention_cases.h: sums over keys, over the queries of heads that share them,
/// over the head; gradients of operands sum pairs along repeated axes. Units for 16 bits round weights and
/// the gradients of scores; every unit rounds o.
inline testing::OpCase errors_of(const Form& form, const Sizes& sizes, DType dtype, bool gradient) {
    const AttentionExtents& e = sizes.e;
    const double terms = static_cast<double>(e.keys + e.heads / e.key_heads * e.queries + e.head_size);
    const double rows = static_cast<double>(e.sequences * e.heads * e.queries);
    testing::OpCase made{
        .op = gradient ? "attention_grad" : "attention", .name = form.name, .operands = {}, .build = {}};
    made.operands.push_back({{dtype, {}}});
    made.error = testing::Error{16, terms, 4.0 / 3};  // weights after a fourth is dropped sum to at most that
    if (gradient) made.error = {16, 3 * terms + rows, std::sqrt(rows)};
    return made;
}

}  // namespace mantissa::testing::scoring
