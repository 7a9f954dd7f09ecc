// The memory that blocks of a GPU's kernels share: rows of a nest that there are many of.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/tensor.h"
#include "tests/support/compiling_test.h"
#include "tests/support/emulated_device.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::EmulatedDevice;

/// y = layer_norm(x) gamma + beta of x [rows, columns].
Graph norm_of(std::int64_t rows, std::int64_t columns) {
    Graph graph;
    const Tensor x(graph, graph.add_input("x", {DType::f32, {rows, columns}}));
    const Tensor gamma(graph, graph.add_input("gamma", {DType::f32, {columns}}));
    const Tensor beta(graph, graph.add_input("beta", {DType::f32, {columns}}));
    graph.add_result("y", layer_norm(x, gamma, beta).value());
    return graph;
}

class CudaTraffic : public testing::CompilingTest {};

/// Results and counts of norms on a GPU. beta is a half everywhere.
struct Normed {
    std::vector<std::byte> y;
    cuda::LaunchCount count;
};

Normed normed(EmulatedDevice& gpu, const std::vector<double>& x, std::int64_t columns) {
    const Graph graph = norm_of(std::ssize(x) / columns, columns);
    std::vector<double> gamma;
    for (std::int64_t i = 0; i < columns; ++i) gamma.push_back(1 + static_cast<double>(i) / 64);
    const ReferenceFeed feed{
        {"x", x}, {"gamma", gamma}, {"beta", std::vector<double>(static_cast<std::size_t>(columns), 0.5)}};
    gpu.gpu.count(true);
    Normed made{testing::run(graph, feed, *gpu)[0], {}};
    const std::vector<cuda::LaunchCount> counts = gpu.gpu.take_counts();
    EXPECT_EQ(counts.size(), 1U);
    if (!counts.empty()) made.count = counts[0];
    return made;
}

std::vector<double> normal(std::int64_t count) {
    const RandomStream random{.seed = 3};
    std::vector<double> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(random.normal(static_cast<std::uint64_t>(i)));
    return all;
}

/// An A100 holds 3,456 blocks of a warp at a time: of up to twice as many rows each has its own.
TEST_F(CudaTraffic, ARowHasTheSameBitsAloneInItsBlockAndBesideOthers) {
    constexpr std::int64_t few = 6'000, columns = 64;
    EmulatedDevice gpu;
    const std::vector<double> x = normal(2 * few * columns);
    const auto half = x.begin() + few * columns;
    const Normed all = normed(gpu, x, columns), first = normed(gpu, {x.begin(), half}, columns),
                 second = normed(gpu, {half, x.end()}, columns);
    EXPECT_EQ(first.count.blocks, few);
    EXPECT_EQ(all.count.blocks, few);
    std::vector<std::byte> apart = first.y;
    apart.insert(apart.end(), second.y.begin(), second.y.end());
    EXPECT_TRUE(all.y == apart);
}

/// The rows of about 16 texts of 1,024 tokens, of GPT-2's width: gamma and beta are read once for six of
/// them. Of each grid three blocks run, and numbers mean nothing.
TEST_F(CudaTraffic, OperandsOfAllRowsAddLittle) {
    EmulatedDevice gpu({.architecture = "sm_90", .sampled = true});
    constexpr std::int64_t rows = 6 * 2730, columns = 768;
    const Normed made = normed(gpu, std::vector<double>(rows * columns), columns);
    ASSERT_EQ(made.count.traffic.size(), 3U);
    const auto blocks = static_cast<double>(made.count.blocks);
    EXPECT_LE(blocks, 2 * 132 * 2048 / (columns / 4));
    const double own = (2.0 * rows * columns + 2 * columns) * sizeof(float) / blocks;
    for (const cuda::BlockTraffic& block : made.count.traffic) {
        const double touched = 32 * static_cast<double>(block.loaded + block.stored);
        EXPECT_GT(touched, own);
        EXPECT_LT(touched, 1.2 * own);
    }
}

}  // namespace
}  // namespace mantissa
