// Parts of attention's spellings, and the comparison of a graph with its transformed version.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/reference.h"
#include "tests/support/op_case.h"

namespace mantissa::testing::attending {

constexpr std::int64_t B = 2, H = 3, T = 5, S = 7, D = 4, C = H * D;
constexpr double infinity = std::numeric_limits<double>::infinity();
inline const double root = std::sqrt(static_cast<double>(D));

/// The operands of spellings.
struct Given {
    Graph graph;
    ReferenceFeed feed;

    Tensor input(const std::string& name, Shape shape, DType dtype = DType::f32) {
        const Type type{dtype, std::move(shape)};
        feed[name] = values_of({type}, static_cast<std::uint32_t>(feed.size()));
        return {graph, graph.add_input(name, type)};
    }
    /// Integers in [0, limit).
    Tensor ids(const std::string& name, Shape shape, std::int64_t limit) {
        const Operand operand = testing::ids(shape, limit);
        feed[name] = values_of(operand, static_cast<std::uint32_t>(feed.size()));
        return {graph, graph.add_input(name, operand.type)};
    }
    Tensor head_major(const char* name) { return input(name, {B, H, T, D}); }
    Tensor q() { return head_major("q"); }
    Tensor k() { return head_major("k"); }
    Tensor v() { return head_major("v"); }
    Tensor number(double value, DType dtype = DType::f32) { return constant(graph, value, dtype); }

    Tensor keys(Shape shape = {T, T}) { return iota(graph, shape, -1); }
    Tensor queries(Shape shape = {T, T}) { return iota(graph, shape, -2); }
    /// bool [T, T]: whether query (row) sees key (column).
    Tensor visible() { return less_equal(keys(), queries()); }
    Tensor masked(Tensor scores) { return select(visible(), scores, number(-infinity)); }
    Tensor scores(Tensor a, Tensor b) { return matmul(a, b, {.transpose_b = true}); }
    /// A buffer of ones on and below the diagonal, made once for the longest text.
    Tensor triangle(std::int64_t longest) {
        const Shape square{longest, longest};
        return select(less_equal(keys(square), queries(square)), number(1), number(0));
    }
};

/// A graph that is almost attention.
struct NearMiss {
    const char* name;
    const char* reason;  ///< or its formula
    std::function<Tensor(Given&)> build;
};

/// By name, the reference's values of the results and of their weighted gradients by every floating-point
/// input.
inline std::map<std::string, std::vector<double>> value_and_gradients(Graph graph, ReferenceFeed feed) {
    std::vector<Tensor> outputs, cotangents, inputs;
    const std::vector<Result> results = graph.results();
    const std::vector<NodeId> given = graph.inputs();
    for (const Result& result : results) {
        outputs.emplace_back(graph, result.value);
        const std::string name = "weights of " + result.name;
        cotangents.emplace_back(graph, graph.add_input(name, graph.type(result.value)));
        feed[name] =
            values_of(Operand{graph.type(result.value)}, 77 + static_cast<std::uint32_t>(outputs.size()));
    }
    std::vector<std::string> names;
    for (const NodeId id : given) {
        if (!is_floating(graph.node(id).outputs[0].dtype)) continue;
        inputs.emplace_back(graph, Value{id, 0});
        names.push_back(graph.node(id).attributes.word("name"));
    }
    const std::vector<Tensor> gradients = backpropagate(graph, outputs, cotangents, inputs);
    const ReferenceRun run(graph, feed);
    std::map<std::string, std::vector<double>> values;
    for (std::size_t i = 0; i < results.size(); ++i) values[results[i].name] = run[outputs[i].value()].values;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto elements = static_cast<std::size_t>(inputs[i].shape().elements());
        values["gradient of " + names[i]] =
            gradients[i] ? run[gradients[i].value()].values : std::vector<double>(elements);
    }
    return values;
}

/// The largest difference, relative to the largest number of the same name.
inline double worst_difference(const Graph& a, const Graph& b, const ReferenceFeed& feed) {
    const auto x = value_and_gradients(a, feed), y = value_and_gradients(b, feed);
    double worst = 0;
    for (const auto& [name, values] : x) {
        const std::vector<double>& others = y.at(name);
        if (others.size() != values.size()) return INFINITY;
        double largest = 1;
        for (const double value : values) largest = std::max(largest, std::abs(value));
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double apart = std::abs(values[i] - others[i]) / largest;
            worst = !(apart <= worst) ? apart : worst;
        }
    }
    return worst;
}

/// The attention of a graph as its formula.
inline std::string formula_of(const Graph& graph) {
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const Node& node = graph.node(static_cast<NodeId>(id));
        if (node.op->name != "attention") continue;
        const AttentionExtents e =
            attention_extents(attention_layout(node.attributes), graph.input_types(node));
        return score_formula(attention_score(node.attributes), node.attributes.flag("causal"), e).text();
    }
    return "none";
}

}  // namespace mantissa::testing::attending
