// Random graphs, fused and compiled, against the reference at every instruction-set level.
#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/graph/printer.h"
#include "mantissa/graph/verifier.h"
#include "mantissa/passes/expand.h"
#include "mantissa/passes/fuse.h"
#include "mantissa/passes/simplify.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_nest.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::levels;
using testing::loaded;
using testing::RandomGraph;
using testing::RandomNest;

Graph expanded(const Graph& graph) {
    return simplify(expand(graph, [](const Graph&, const Node&) { return true; }));
}

std::vector<std::vector<double>> reference(const Graph& graph, const ReferenceFeed& feed) {
    const ReferenceRun run(graph, feed);
    std::vector<std::vector<double>> values;
    for (const Result& result : graph.results()) values.push_back(run[result.value].values);
    return values;
}

constexpr FuseOptions everything{.least_bytes_saved = 0};

TEST(FuseRandom, KeepsEveryBitOfTheReferenceAndIsIdempotent) {
    std::size_t before = 0, after = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const RandomGraph random(seed);
        const Graph plain = expanded(random.graph);
        const Fusion fusion = fuse(plain, everything);
        verify(fusion.graph, "fuse");
        ASSERT_EQ(reference(fusion.graph, random.feed), reference(plain, random.feed)) << "seed " << seed;
        ASSERT_EQ(print(fuse(fusion.graph, everything).graph), print(fusion.graph)) << "seed " << seed;
        before += plain.size();
        after += fusion.graph.size();
    }
    EXPECT_LT(after, before / 2);  // most of what the graphs do can be fused
}

TEST(FuseRandom, NestsKeepEveryBitOfTheReference) {
    std::size_t before = 0, after = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
        const RandomNest random(seed);
        const Graph plain = expanded(random.graph);
        const Fusion fusion = fuse(plain, everything);
        verify(fusion.graph, "fuse");
        ASSERT_EQ(reference(fusion.graph, random.feed), reference(plain, random.feed)) << "seed " << seed;
        before += plain.size();
        after += fusion.graph.size();
    }
    EXPECT_LT(after, before / 3);
}

/// The largest error of each result; infinite where one is NaN and the other is not.
std::vector<double> errors(const Graph& graph, const ReferenceFeed& feed, Device& device,
                           const std::vector<std::vector<double>>& expected) {
    const auto results = testing::run(graph, feed, device);
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

double largest(const std::vector<double>& values) {
    double largest = 0;
    for (double x : values) largest = std::max(largest, std::abs(x));
    return largest;
}

ReferenceFeed rounded(const ReferenceFeed& feed) {
    ReferenceFeed result;
    for (const auto& [name, values] : feed)
        for (double x : values) result[name].push_back(static_cast<double>(static_cast<float>(x)));
    return result;
}

/// Twice the error of the same graph run operation by operation, each kernel of which is within its own ULPs,
/// and at least 16 roundings of the largest element: with few operations those may cancel by luck.
void check_compiled(std::uint64_t first, std::uint64_t last, const std::string& level) {
    const auto device = device_at(level);
    for (std::uint64_t seed = first; seed < last; ++seed) {
        const RandomNest random(seed);
        const ReferenceFeed feed = rounded(random.feed);
        const Graph plain = expanded(random.graph);
        const auto expected = reference(plain, feed);
        const auto by_step = errors(plain, feed, *device, expected);
        const auto compiled = errors(fuse(plain, everything).graph, feed, *device, expected);
        for (std::size_t r = 0; r < compiled.size(); ++r)
            ASSERT_LE(compiled[r], 2 * by_step[r] + 16 * 0x1p-24 * (1 + largest(expected[r])))
                << "seed " << seed << ", " << level << ", y" << r;
    }
}

TEST(FuseRandom, CompiledEqualsTheReferenceAtEveryLevel) {
    for (const std::string& level : levels()) check_compiled(0, 40, level);
}

TEST(FuseRandomSlow, CompiledEqualsTheReferenceAtEveryLevel) {
    for (const std::string& level : levels()) check_compiled(0, 1500, level);
}

}  // namespace
}  // namespace mantissa
