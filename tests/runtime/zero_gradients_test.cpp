// Zeros that products of the backward pass leave out, and no others: what tells them apart is a node's stage.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/op_cases.h"
#include "tests/support/passes.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::f32;
using testing::levels;
using testing::loaded;
using testing::values_of;

/// relu(dy^T x) of 128 tokens, in a stage; the second half of dy is zeros, of x infinities.
struct PaddedProduct {
    Graph graph;
    ReferenceFeed feed;

    explicit PaddedProduct(Stage stage) {
        const OriginScope scope(graph, Origin{.scope = "", .stage = stage});
        const Tensor dy = input("dy", 40, 0), x = input("x", 24, std::numeric_limits<double>::infinity());
        graph.add_result("dw", relu(matmul(dy, x, {.transpose_a = true})).value());
    }

    Tensor input(const char* name, std::int64_t channels, double padding) {
        std::vector<double> values = values_of(f32({128, channels}), 1);
        std::fill(values.begin() + 64 * channels, values.end(), padding);
        feed[name] = std::move(values);
        return {graph, graph.add_input(name, {DType::f32, {128, channels}})};
    }
};

TEST(ZeroGradients, AreLeftOutOfTheBackwardPassAlone) {
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        for (const Stage stage : {Stage::forward, Stage::backward}) {
            const PaddedProduct product(stage);
            std::vector<Graph> graphs{product.graph};
            if (codegen::Compiler::refusal().empty())
                graphs.push_back(simplify(fuse(product.graph, testing::any_size()).graph, MergeStages::no));
            for (const Graph& graph : graphs) {
                const auto results = testing::run(graph, product.feed, *device);
                const std::vector<double> dw = loaded(results[0], DType::f32);
                const bool is_finite =
                    std::ranges::all_of(dw, [](double each) { return std::isfinite(each); });
                EXPECT_EQ(is_finite, stage == Stage::backward) << level << " " << graph.size() << " nodes";
            }
        }
    }
}

}  // namespace
}  // namespace mantissa
