// NUMA nodes as the system tells of them, planted, and what is said about them.
#include "cli/numa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "mantissa/ranks/launched.h"
#include "tests/support/temporary_directory.h"

namespace mantissa::cli {
namespace {

namespace fs = std::filesystem;

/// A folder as the system's, a node for each list of cores.
fs::path planted(const TemporaryDirectory& directory, const std::vector<std::string>& cores) {
    const fs::path root = directory.path() / "node";
    fs::create_directories(root / "power");  // is no node
    std::ofstream(root / "online") << "0-" << cores.size() - 1 << "\n";
    for (std::size_t node = 0; node < cores.size(); ++node) {
        const fs::path folder = root / ("node" + std::to_string(node));
        fs::create_directories(folder);
        std::ofstream(folder / "cpulist") << cores[node] << "\n";
    }
    return root;
}

std::vector<int> from_to(int first, int last) {
    std::vector<int> numbers(static_cast<std::size_t>(last - first + 1));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
}

TEST(Numa, OneNodeIsNotWorthALine) {
    const TemporaryDirectory directory;
    const std::vector<NumaNode> nodes = numa_nodes(planted(directory, {"0-1"}));
    ASSERT_EQ(nodes.size(), 1u);
    EXPECT_EQ(nodes[0].cores, from_to(0, 1));
    EXPECT_EQ(numa_advice(nodes, {0, 1}, 1), "");
}

TEST(Numa, NothingIsFoundWhereTheSystemTellsNothing) {
    const TemporaryDirectory directory;
    EXPECT_TRUE(numa_nodes(directory.path() / "none").empty());
    EXPECT_EQ(numa_advice({}, {0, 1}, 1), "");
}

TEST(Numa, ListsOfCoresAreReadWithGapsAndInTheOrderOfNodes) {
    const TemporaryDirectory directory;
    std::vector<std::string> cores;
    for (int node = 0; node < 12; ++node)
        cores.push_back(std::to_string(2 * node) + "," + std::to_string(2 * node + 1));
    cores[1] = "2-3,30,32-34";
    cores[3] = "";  // memory alone
    const std::vector<NumaNode> nodes = numa_nodes(planted(directory, cores));
    ASSERT_EQ(nodes.size(), 11u);
    EXPECT_EQ(nodes[1].cores, (std::vector<int>{2, 3, 30, 32, 33, 34}));
    EXPECT_EQ(nodes[3].number, 4);
    EXPECT_EQ(nodes[10].number, 11);
}

TEST(Numa, OnTwoNodesARankANodeIsBest) {
    const TemporaryDirectory directory;
    const std::vector<NumaNode> nodes = numa_nodes(planted(directory, {"0-31,64-95", "32-63,96-127"}));
    EXPECT_EQ(numa_advice(nodes, from_to(0, 127), 1),
              "2 NUMA nodes, 128 cores; this process may use 128 cores on 2 nodes: best is a rank a node, "
              "mpirun -n 2 "
              "--map-by numa --bind-to numa");
    EXPECT_EQ(numa_advice(nodes, from_to(0, 127), 2),
              "2 NUMA nodes, 128 cores; this process may use 128 cores on 2 nodes: keep each rank to a node, "
              "with mpirun "
              "--map-by numa --bind-to numa");
    EXPECT_EQ(numa_advice(nodes, from_to(32, 63), 2),
              "2 NUMA nodes, 128 cores; this process may use 32 cores on node 1: its memory is near");
}

TEST(Numa, OfEightNodesThoseCountThatTheProcessMayUse) {
    const TemporaryDirectory directory;
    std::vector<std::string> cores;
    for (int node = 0; node < 8; ++node)
        cores.push_back(std::to_string(8 * node) + "-" + std::to_string(8 * node + 7));
    const std::vector<NumaNode> nodes = numa_nodes(planted(directory, cores));
    EXPECT_EQ(numa_advice(nodes, from_to(4, 19), 1),
              "8 NUMA nodes, 64 cores; this process may use 16 cores on 3 nodes: best is a rank a node, "
              "mpirun -n 3 "
              "--map-by numa --bind-to numa");
}

TEST(Numa, ThisMachineHasNodesWithTheCoresThatAreUsable) {
    const std::vector<int> usable = usable_cores();
    EXPECT_FALSE(usable.empty());
    if (numa_nodes().empty()) GTEST_SKIP() << "the system tells of no nodes";
    std::size_t near = 0;
    for (const NumaNode& node : numa_nodes())
        for (const int core : node.cores) near += static_cast<std::size_t>(std::ranges::count(usable, core));
    EXPECT_EQ(near, usable.size());
}

}  // namespace
}  // namespace mantissa::cli
