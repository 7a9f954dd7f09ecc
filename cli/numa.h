// NUMA nodes of this machine: parts of its memory, each with the cores that are near to it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::cli {

struct NumaNode {
    int number = 0;
    std::vector<int> cores;
};

/// Nodes that have cores, by number, as the system tells of them in a folder. None where it does not.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& root = "/sys/devices/system/node");

/// A line that says which nodes there are and what is best for training; empty on one node. `usable`: cores
/// that this process may use. `ranks`: processes that train together on this machine, this one included.
std::string numa_advice(const std::vector<NumaNode>& nodes, const std::vector<int>& usable, int ranks);

}  // namespace mantissa::cli
