// Batch normalisation as a whole, with its gradients, where numbers are awkward: no variance, one element a
// channel, means a thousand times the deviation. On its own kernels and fused, at every level, against FP64.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/codegen/compiler.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/expand.h"
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

struct BatchNormCase {
    const char* name;
    std::int64_t rows, channels;
    double mean = 0, deviation = 1;
};

const BatchNormCase batch_norm_cases[] = {{"of usual numbers", 600, 33},
                                          {"of one element a channel", 1, 33},
                                          {"of equal numbers", 300, 17, 0.3, 0},
                                          {"of means a thousand times the deviation", 1500, 40, 1000},
                                          {"of means far below", 700, 16, -3000, 3},
                                          {"of small deviations", 257, 20, 1e-3, 1e-6}};

/// relu(batch_norm(x)) and the gradients of x, gamma and beta.
struct RecordedNorm {
    Graph graph;
    ReferenceFeed feed;

    explicit RecordedNorm(const BatchNormCase& k) {
        const Shape image{k.rows, k.channels}, channels{k.channels};
        std::uint32_t next = 0;
        const auto input = [&](const char* name, const Shape& shape) {
            feed[name] = values_of(f32(shape), next++);
            return Tensor(graph, graph.add_input(name, {DType::f32, shape}));
        };
        const Tensor x = input("x", image), gamma = input("gamma", channels), beta = input("beta", channels),
                     dy = input("dy", image);
        for (double& each : feed["x"])
            each = static_cast<double>(static_cast<float>(k.mean + k.deviation * each));
        const Tensor y = relu(batch_norm(x, gamma, beta).y);
        graph.add_result("y", y.value());
        const std::vector<Tensor> inputs{x, gamma, beta};
        const OriginScope backward(graph, Origin{.scope = "", .stage = Stage::backward});
        const auto gradients = backpropagate(graph, {&y, 1}, {&dy, 1}, inputs);
        for (std::size_t i = 0; i < gradients.size(); ++i)
            graph.add_result(std::string("d") + std::to_string(i), gradients[i].value());
    }
};

Graph fused_for(const Graph& graph, const Device& device) {
    const Machine machine = machine_for_passes(device);
    const Graph expanded = expand(graph, [&](const Graph& g, const Node& node) {
        return !machine.has_kernel(g, node) || nest_can_hold(g, node);
    });
    return simplify(fuse(simplify(expanded, MergeStages::no), testing::any_size()).graph, MergeStages::no);
}

/// The largest difference from the reference, in units of 2^-24 of the largest result and of what rounding
/// the mean to FP32 costs: it moves each centered value by as much, in deviations.
double worst_norm_error(const BatchNormCase& k, const Graph& graph, const RecordedNorm& recorded,
                        Device& device) {
    const ReferenceRun reference(recorded.graph, recorded.feed);
    const auto results = testing::run(graph, recorded.feed, device);
    const double deviation = std::sqrt(k.deviation * k.deviation + 1e-5);
    double worst = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const std::vector<double> got = loaded(results[i], DType::f32);
        const auto& expected = reference[recorded.graph.results()[i].value].values;
        double largest = 0;
        for (double each : expected) largest = std::max(largest, std::abs(each));
        // The gradient by the scale adds up all rows.
        const double terms = i == 2 ? std::sqrt(static_cast<double>(k.rows)) : 1;
        const double unit =
            0x1p-24 * (1 + largest) * (1 + std::abs(k.mean) / deviation * terms / (1 + largest));
        for (std::size_t j = 0; j < expected.size(); ++j) {
            const double error = std::abs(got[j] - expected[j]) / unit;
            worst = !(error <= worst) ? error : worst;
        }
    }
    return worst;
}

TEST(BatchNorm, AgreesWithFp64WhereNumbersAreAwkward) {
    for (const std::string& level : levels()) {
        const auto device = device_at(level);
        for (const BatchNormCase& k : batch_norm_cases) {
            const RecordedNorm recorded(k);
            EXPECT_LE(worst_norm_error(k, recorded.graph, recorded, *device), 32)
                << k.name << " at " << level;
            if (!codegen::Compiler::refusal().empty()) continue;
            const Graph one_kernel = fused_for(recorded.graph, *device);
            EXPECT_LE(worst_norm_error(k, one_kernel, recorded, *device), 32)
                << k.name << ", fused, at " << level;
        }
    }
}

TEST(BatchNorm, AVarianceThatCancelsDoesNotPass) {
    // The mean of squares less the square of the mean, in FP32.
    const BatchNormCase& k = batch_norm_cases[3];
    const RecordedNorm recorded(k);
    Graph graph;
    std::vector<Tensor> inputs;
    for (NodeId id : recorded.graph.inputs()) {
        const Node& node = recorded.graph.node(id);
        inputs.emplace_back(graph, graph.add_input(node.attributes.word("name"), node.outputs[0]));
    }
    const Tensor x = inputs[0], average = mean(x, {0}), variance = mean(x * x, {0}) - average * average;
    const Tensor y = normalize(x, inputs[1], inputs[2], {.mean = average, .variance = variance});
    graph.add_result("y", relu(y).value());
    const auto device = device_at("generic");
    EXPECT_FALSE(worst_norm_error(k, graph, recorded, *device) <= 32);
}

}  // namespace
}  // namespace mantissa
