// Random graphs of whole numbers through the passes and kernels, to the bit: results, and states after a run.
#include <gtest/gtest.h>

#include "mantissa/graph/graph.h"
#include "mantissa/runtime/execution.h"
#include "mantissa/runtime/state_block.h"
#include "tests/support/fused_graph.h"
#include "tests/support/nan_memory.h"
#include "tests/support/random_exact.h"
#include "tests/support/run_graph.h"

namespace mantissa {
namespace {

using testing::device_at;
using testing::fused;
using testing::levels;
using testing::RandomExact;

using Numbers = std::vector<std::vector<double>>;

/// Results, then states as a run leaves them.
Numbers by_reference(const Graph& graph, const ReferenceFeed& feed) {
    const ReferenceRun run(graph, feed);
    Numbers numbers;
    for (const Result& result : graph.results()) numbers.push_back(run[result.value].values);
    const ReferenceFeed next = run.next(feed);
    for (const State& state : graph.states()) numbers.push_back(next.at(state.name));
    return numbers;
}

Numbers by_kernels(const Graph& graph, const ReferenceFeed& feed, Device& device) {
    const Plan plan(graph, device);
    StateBlock state(device, graph.states());
    for (const State& each : graph.states())
        state.write(each.name, testing::stored(feed.at(each.name), each.type.dtype));
    const auto arena = testing::nan_memory(device, plan.memory().arena_bytes);
    Execution execution(plan, state, *arena);
    for (NodeId id : graph.inputs()) {
        const std::string& name = graph.node(id).attributes.word("name");
        execution.set_input(name, testing::stored(feed.at(name), graph.node(id).outputs[0].dtype));
    }
    execution.run();
    Numbers numbers;
    for (const Result& result : graph.results())
        numbers.push_back(
            testing::loaded(execution.read_result(result.name), graph.type(result.value).dtype));
    for (const State& each : graph.states())
        numbers.push_back(testing::loaded(state.read(each.name), each.type.dtype));
    return numbers;
}

void check_graphs(std::uint64_t first, std::uint64_t last) {
    const auto device = device_at(levels().back());
    const bool compiles = device->target().cannot_compile.empty();
    std::size_t kernels = 0, updates = 0;
    for (std::uint64_t seed = first; seed < last; ++seed) {
        const RandomExact random(seed);
        const Numbers expected = by_reference(random.graph, random.feed);
        ASSERT_EQ(by_kernels(random.graph, random.feed, *device), expected) << "seed " << seed;
        const Graph one = fused(random.graph);
        ASSERT_EQ(by_reference(one, random.feed), expected) << "seed " << seed << ", fused";
        if (compiles) {
            ASSERT_EQ(by_kernels(one, random.feed, *device), expected) << "seed " << seed << ", compiled";
        }
        for (std::size_t id = 0; id < one.size(); ++id)
            kernels += one.node(static_cast<NodeId>(id)).op->name == "fused";
        updates += one.updates().size();
    }
    EXPECT_GT(kernels, 2 * (last - first));
    EXPECT_GT(updates, (last - first) / 4);
}

TEST(RandomExactGraphs, AgreeToTheBit) { check_graphs(0, 150); }

TEST(RandomExactGraphsSlow, AgreeToTheBit) { check_graphs(150, 6000); }

}  // namespace
}  // namespace mantissa
