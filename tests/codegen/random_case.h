// Random graphs whose fused kernels are held to the reference, with a bound on the error that follows from
// the graph: for every kind of code that is made of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/rewriter.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/passes.h"
#include "tests/support/random_nest.h"
#include "tests/support/run_graph.h"

namespace mantissa::testing {

inline Graph expanded(const Graph& graph) {
    return simplify(expand(graph, [](const Graph&, const Node&) { return true; }));
}

inline std::vector<std::vector<double>> reference(const Graph& graph, const ReferenceFeed& feed) {
    const ReferenceRun run(graph, feed);
    std::vector<std::vector<double>> values;
    for (const Result& result : graph.results()) values.push_back(run[result.value].values);
    return values;
}

inline const Machine everything = any_size();

/// The largest error of each result; infinite where one is NaN and the other is not.
inline std::vector<double> errors(const Graph& graph, const ReferenceFeed& feed, Device& device,
                                  const std::vector<std::vector<double>>& expected) {
    const auto results = run(graph, feed, device);
    std::vector<double> worst(results.size());
    for (std::size_t r = 0; r < results.size(); ++r) {
        const auto got = loaded(results[r], DType::f32);
        EXPECT_EQ(got.size(), expected[r].size());
        for (std::size_t i = 0; i < got.size(); ++i) {
            if (std::isnan(got[i]) && std::isnan(expected[r][i])) continue;
            const double error = std::abs(got[i] - expected[r][i]);
            if (!(error <= worst[r])) worst[r] = std::isnan(error) ? INFINITY : error;
        }
    }
    return worst;
}

inline double largest(const std::vector<double>& values) {
    double largest = 0;
    for (double x : values) largest = std::max(largest, std::abs(x));
    return largest;
}

inline ReferenceFeed rounded(const ReferenceFeed& feed) {
    ReferenceFeed result;
    for (const auto& [name, values] : feed)
        for (double x : values) result[name].push_back(static_cast<double>(static_cast<float>(x)));
    return result;
}

/// The graph with each sum off by so many parts of the sum of its terms' magnitudes.
inline Graph with_sums_off(const Graph& graph, double parts) {
    Rewriter rewriter(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.size()); ++id) {
        rewriter.copy(id);
        if (graph.node(id).op->name != "sum") continue;
        const Node node = rewriter.target().node(rewriter.map(Value{id, 0}).node);
        const Tensor terms(rewriter.target(), node.inputs[0]);
        const Tensor off = call1("sum", {maximum(terms, -terms)}, node.attributes) * parts;
        const Tensor summed(rewriter.target(), rewriter.map(Value{id, 0}));
        rewriter.place({id, 0}, (summed + off).value());
    }
    return rewriter.finish();
}

/// How far each result moves where sums are made in FP32. Run by themselves they are added in FP64, in
/// a nest in FP32, up to 25 additions one after another: 9 turns of sixteen columns, 4 across them, 12 rows.
inline std::vector<double> effect_of_sums(const Graph& plain, const ReferenceFeed& feed) {
    const auto expected = reference(plain, feed);
    std::vector<double> effect(expected.size());
    for (const double sign : {-1.0, 1.0}) {
        const auto moved = reference(with_sums_off(plain, sign * 25 * 0x1p-24), feed);
        for (std::size_t r = 0; r < effect.size(); ++r)
            for (std::size_t i = 0; i < moved[r].size(); ++i)
                effect[r] = std::max(effect[r], std::abs(moved[r][i] - expected[r][i]));
    }
    return effect;
}

/// A random graph, what its results are, and how far sums in FP32 move them: the same at every level.
struct Case {
    explicit Case(std::uint64_t seed) : Case(RandomNest(seed)) {}
    explicit Case(const RandomNest& random)
        : plain(expanded(random.graph)),
          feed(rounded(random.feed)),
          expected(reference(plain, feed)),
          sums(effect_of_sums(plain, feed)) {}

    Graph plain;
    ReferenceFeed feed;
    std::vector<std::vector<double>> expected;
    std::vector<double> sums;
};

/// The largest error in units of what is allowed, over all results: twice the error of the same graph run
/// operation by operation, each kernel of which is within its own ULPs, at least 16 roundings of the largest
/// element, since with few operations those may cancel by luck, and the effect of sums in FP32.
inline double worst_ratio(const Graph& compiled, const Case& known, Device& device) {
    const auto by_step = errors(known.plain, known.feed, device, known.expected);
    const auto found = errors(compiled, known.feed, device, known.expected);
    double worst = 0;
    for (std::size_t r = 0; r < found.size(); ++r) {
        const double roundings = 16 * 0x1p-24 * (1 + largest(known.expected[r]));
        worst = std::max(worst, found[r] / (2 * by_step[r] + roundings + known.sums[r]));
    }
    return worst;
}

/// The graph with its first result off by one part in 4096.
inline Graph with_error(const Graph& graph) {
    Graph wrong;
    std::vector<Tensor> inputs;
    for (NodeId id : graph.inputs())
        inputs.emplace_back(
            wrong, wrong.add_input(graph.node(id).attributes.word("name"), graph.node(id).outputs[0]));
    // The graph itself as a body, whose definition copies it.
    Graph body = graph;
    const auto outputs = call(wrong, "fused", inputs, {{"body", Body(std::move(body))}});
    for (std::size_t i = 0; i < outputs.size(); ++i)
        wrong.add_result("y" + std::to_string(i), (i == 0 ? outputs[i] * (1 + 0x1p-12) : outputs[i]).value());
    return expanded(wrong);
}

}  // namespace mantissa::testing
