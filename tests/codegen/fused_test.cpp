// Fused kernels: what is compiled equals the reference, at every instruction-set level.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/printer.h"
#include "mantissa/graph/verifier.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::loaded;
using testing::run;

Graph fused(const Graph& graph) {
    const Graph expanded = simplify(expand(graph, [](const Graph&, const Node&) { return true; }));
    Fusion fusion = fuse(expanded, {.least_bytes_saved = 0});
    verify(fusion.graph, "fuse");
    return std::move(fusion.graph);
}

std::vector<double> values(std::int64_t count, std::uint32_t which) {
    const RandomStream random{.seed = 3, .step = 0, .operation = which};
    std::vector<double> all;
    for (std::int64_t i = 0; i < count; ++i)
        all.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
    return all;
}

TEST(Fused, GeluByItsFormula) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {3, 1001}}));
    graph.add_result("y", (x * 0.5 * (tanh((x + x * x * x * 0.044715) * 0.7978845608) + 1.0)).value());
    const Graph one = fused(graph);
    std::printf("%s", print(one).c_str());
    const ReferenceFeed feed{{"x", values(3003, 1)}};
    const ReferenceRun reference(graph, feed);
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        const auto got = loaded(run(one, feed, *device)[0], DType::f32);
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i)
            worst = std::max(worst, std::abs(got[i] - reference.result("y").values[i]));
        EXPECT_LT(worst, 1e-6) << level;
    }
}

TEST(Fused, LayerNormAndItsGradient) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {5, 7, 100}}));
    const Tensor gamma(graph, graph.add_input("gamma", {DType::f32, {100}}));
    const Tensor dy(graph, graph.add_input("dy", {DType::f32, {5, 7, 100}}));
    const auto y = call(graph, "layer_norm", std::vector{x, gamma, gamma}, {{"epsilon", 1e-5}});
    const auto dx =
        call(graph, "layer_norm_grad", std::vector{dy, x, gamma, y[1], y[2]}, {{"epsilon", 1e-5}});
    for (const auto& [name, value] :
         {std::pair{"y", y[0]}, {"dx", dx[0]}, {"dgamma", dx[1]}, {"dbeta", dx[2]}})
        graph.add_result(name, value.value());
    const Graph one = fused(graph);
    std::printf("%s", print(one).c_str());
    const ReferenceFeed feed{{"x", values(3500, 1)}, {"gamma", values(100, 2)}, {"dy", values(3500, 3)}};
    const ReferenceRun reference(graph, feed);
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        const auto results = run(one, feed, *device);
        for (std::size_t r = 0; r < results.size(); ++r) {
            const auto got = loaded(results[r], DType::f32);
            double worst = 0;
            for (std::size_t i = 0; i < got.size(); ++i)
                worst = std::max(worst, std::abs(got[i] - reference[graph.results()[r].value].values[i]));
            EXPECT_LT(worst, 1e-5) << level << " " << graph.results()[r].name;
        }
    }
}

}  // namespace
}  // namespace mantissa
