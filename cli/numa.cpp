#include "cli/numa.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>
#include "mantissa/base/printable.h"

namespace mantissa::cli {

namespace {

/// Removes a leading number; -1 if there is none.
int take_number(std::string_view& text) {
    int number = -1;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc{}) return -1;
    text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
    return number;
}

/// Numbers of a system's list, as "0-3,8".
std::vector<int> numbers_of(std::string_view text) {
    std::vector<int> numbers;
    while (!text.empty()) {
        const int first = take_number(text);
        if (first < 0) break;
        int last = first;
        if (text.starts_with('-')) {
            text.remove_prefix(1);
            last = take_number(text);
        }
        for (int number = first; number <= last; ++number) numbers.push_back(number);
        if (!text.starts_with(',')) break;
        text.remove_prefix(1);
    }
    return numbers;
}

int number_of_folder(std::string_view name) {
    if (!name.starts_with("node")) return -1;
    name.remove_prefix(4);
    const int number = take_number(name);
    return name.empty() ? number : -1;
}

}  // namespace

std::vector<NumaNode> numa_nodes(const std::filesystem::path& root) {
    std::vector<NumaNode> nodes;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
        const int number = number_of_folder(entry.path().filename().string());
        std::string cores;
        std::ifstream file(entry.path() / "cpulist");
        if (number < 0 || !(file >> cores)) continue;  // a node without cores has an empty list
        nodes.push_back({number, numbers_of(cores)});
    }
    std::ranges::sort(nodes, {}, &NumaNode::number);
    return nodes;
}

std::string numa_advice(const std::vector<NumaNode>& nodes, const std::vector<int>& usable, int ranks) {
    if (nodes.size() < 2) return "";
    std::size_t cores = 0;
    std::vector<int> used;  // nodes
    for (const NumaNode& node : nodes) {
        cores += node.cores.size();
        if (std::ranges::any_of(node.cores, [&](int core) { return std::ranges::count(usable, core) > 0; }))
            used.push_back(node.number);
    }
    const std::string found = fmt::format(
        "{}, {}; this process may use {} on {}", count_text(nodes.size(), "NUMA node"),
        count_text(cores, "core"), count_text(usable.size(), "core"),
        used.size() == 1 ? fmt::format("node {}", used[0]) : fmt::format("{} nodes", used.size()));
    if (used.size() < 2) return found + ": its memory is near";
    if (ranks > 1) return found + ": keep each rank to a node, with mpirun --map-by numa --bind-to numa";
    return found +
           fmt::format(": best is a rank a node, mpirun -n {} --map-by numa --bind-to numa", used.size());
}

}  // namespace mantissa::cli
