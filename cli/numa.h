// NUMA nodes of this machine: parts of its memory, each with its nearby cores.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::cli {

struct NumaNode {
    int number = 0;
    std::vector<int> cores;
};

/// Nodes with cores, by number, from the system's folder; none if it has no data.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& root = "/sys/devices/system/node");

/// A line with the nodes and the best setup for training; empty for one node. `usable`: cores of this
/// process. `ranks`: processes that train together on this machine, this one included.
std::string numa_advice(const std::vector<NumaNode>& nodes, const std::vector<int>& usable, int ranks);

}  // namespace mantissa::cli
