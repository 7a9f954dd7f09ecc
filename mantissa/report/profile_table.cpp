#include "mantissa/report/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

struct ProfileLine {
    std::string op, stage, kernel;
    int launches = 0;
    double seconds = 0;
    Cost cost;
};

std::vector<ProfileLine> profile_lines(const Plan& plan, const Profile& profile) {
    std::map<std::tuple<std::string_view, Stage, std::string>, ProfileLine> by_key;
    for (std::size_t i = 0; i < profile.size(); ++i) {
        const PlannedNode& planned = plan.nodes()[i];
        const Node& node = plan.graph().node(planned.node);
        ProfileLine& line = by_key[{node.op->name, node.origin.stage, planned.kernel}];
        line.op = node.op->name;
        line.stage = name_of(node.origin.stage);
        line.kernel = planned.kernel;
        ++line.launches;
        line.seconds += profile[i];
        line.cost.flops += planned.cost.flops;
        line.cost.bytes += planned.cost.bytes;
    }
    std::vector<ProfileLine> lines;
    for (auto& [key, line] : by_key) lines.push_back(std::move(line));
    std::sort(lines.begin(), lines.end(),
              [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
    return lines;
}

}  // namespace

std::string profile_table(const Plan& plan, const Profile& profile) {
    check(profile.size() == plan.nodes().size(), "a profile has a time for each planned node");
    double total = 0;
    for (double seconds : profile) total += seconds;
    std::string text = fmt::format("{:<20} {:<9} {:>8} {:>10} {:>7} {:>9} {:>7}  {}\n", "operation", "stage",
                                   "launches", "ms", "share", "GFLOP/s", "GB/s", "kernel");
    for (const ProfileLine& line : profile_lines(plan, profile))
        text += fmt::format("{:<20} {:<9} {:>8} {:>10.2f} {:>5.1f} % {:>9.1f} {:>7.1f}  {}\n", line.op,
                            line.stage, line.launches, line.seconds * 1e3, 100 * line.seconds / total,
                            static_cast<double>(line.cost.flops) / line.seconds / 1e9,
                            static_cast<double>(line.cost.bytes) / line.seconds / 1e9, line.kernel);
    return text + fmt::format("{:<20} {:<9} {:>8} {:>10.2f}\n", "all", "", profile.size(), total * 1e3);
}

}  // namespace mantissa
