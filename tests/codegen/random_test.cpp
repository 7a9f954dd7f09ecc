// Random graphs, fused and compiled, against the reference at every instruction-set level.
#include <gtest/gtest.h>

#include "mantissa/graph/graph.h"
#include "tests/codegen/random_case.h"
#include "tests/support/random_draws.h"
#include "tests/support/random_graph.h"

namespace mantissa {
namespace {

using testing::Case;
using testing::device_at;
using testing::everything;
using testing::expanded;
using testing::levels;
using testing::random_draws;
using testing::RandomGraph;
using testing::RandomNest;
using testing::reference;
using testing::with_error;
using testing::worst_ratio;

TEST(FuseRandom, KeepsEveryBitOfTheReferenceAndIsIdempotent) {
    std::size_t before = 0, after = 0;
    const auto draws = static_cast<std::uint64_t>(random_draws(1000, 100));
    for (std::uint64_t seed = 0; seed < draws; ++seed) {
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
    int recomputed = 0;
    const auto draws = static_cast<std::uint64_t>(random_draws(1000, 100));
    for (std::uint64_t seed = 0; seed < draws; ++seed) {
        const RandomNest random(seed);
        const Graph plain = expanded(random.graph);
        const Fusion fusion = fuse(plain, everything);
        verify(fusion.graph, "fuse");
        ASSERT_EQ(reference(fusion.graph, random.feed), reference(plain, random.feed)) << "seed " << seed;
        before += plain.size();
        recomputed += fusion.recomputed;
        after += fusion.graph.size();
    }
    EXPECT_LT(after, before / 3);
    EXPECT_GT(recomputed, random_draws(1000, 100) / 50);  // in the graphs that have a backward pass
}

void check_compiled(std::uint64_t first, std::uint64_t last) {
    std::vector<std::unique_ptr<Device>> devices;
    for (const std::string& level : levels()) devices.push_back(device_at(level));
    if (!devices[0]->target().cannot_compile.empty()) GTEST_SKIP() << devices[0]->target().cannot_compile;
    for (std::uint64_t seed = first; seed < last; ++seed) {
        const Case known(seed);
        const Graph compiled = fuse(known.plain, everything).graph;
        for (std::size_t i = 0; i < devices.size(); ++i)
            ASSERT_LE(worst_ratio(compiled, known, *devices[i]), 1.0)
                << "seed " << seed << ", " << levels()[i];
    }
}

TEST(FuseRandom, AnInjectedErrorIsCaught) {
    const auto device = device_at(levels().back());
    if (!device->target().cannot_compile.empty()) GTEST_SKIP() << device->target().cannot_compile;
    int caught = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const Case known(seed);
        caught += worst_ratio(fuse(with_error(known.plain), everything).graph, known, *device) > 1.0;
    }
    EXPECT_GE(caught, 9);  // a result may happen to be zero
}

TEST(FuseRandom, CompiledEqualsTheReferenceAtEveryLevel) { check_compiled(0, 12); }

TEST(FuseRandomSlow, CompiledEqualsTheReferenceAtEveryLevel) { check_compiled(0, 1500); }

}  // namespace
}  // namespace mantissa
