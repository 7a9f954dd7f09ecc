// Zeros that products leave out: those of the backward pass, told by a node's stage, and those of the forward
// pass whose attribute allows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/call.h"
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

    explicit PaddedProduct(Stage stage, bool leaves_out) {
        const OriginScope scope(graph, Origin{.scope = "", .stage = stage});
        const Tensor dy = input("dy", 40, 0), x = input("x", 24, std::numeric_limits<double>::infinity());
        Attributes attributes{{"transpose_a", true}, {"transpose_b", false}};
        if (leaves_out) attributes = attributes.with("leaves_zeros_out", true);
        graph.add_result("dw", relu(call1("matmul", {dy, x}, attributes)).value());
    }

    Tensor input(const char* name, std::int64_t channels, double padding) {
        std::vector<double> values = values_of(f32({128, channels}), 1);
        std::fill(values.begin() + 64 * channels, values.end(), padding);
        feed[name] = std::move(values);
        return {graph, graph.add_input(name, {DType::f32, {128, channels}})};
    }
};

TEST(ZeroGradients, AreLeftOutWhereStageOrAttributeSaysSo) {
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        for (const auto& [stage, leaves_out] :
             {std::pair{Stage::forward, false}, std::pair{Stage::forward, true},
              std::pair{Stage::backward, false}}) {
            const PaddedProduct product(stage, leaves_out);
            std::vector<Graph> graphs{product.graph};
            if (codegen::Compiler::refusal().empty())
                graphs.push_back(simplify(fuse(product.graph, testing::any_size()).graph, MergeStages::no));
            for (const Graph& graph : graphs) {
                const auto results = testing::run(graph, product.feed, *device);
                const std::vector<double> dw = loaded(results[0], DType::f32);
                const bool is_finite =
                    std::ranges::all_of(dw, [](double each) { return std::isfinite(each); });
                EXPECT_EQ(is_finite, leaves_out || stage == Stage::backward)
                    << level << " " << graph.size() << " nodes";
            }
        }
    }
}

}  // namespace
}  // namespace mantissa
