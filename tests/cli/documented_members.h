// Members of a report's JSON that docs/json.md does not name.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "mantissa/base/file.h"

namespace mantissa::testing {

/// The line of docs/json.md about each member of a command's report, by its name there.
inline std::map<std::string, std::string> documented_members(const std::string& command) {
    std::istringstream lines(read_file(MANTISSA_SOURCE_DIR "/docs/json.md"));
    std::map<std::string, std::string> members;
    bool within = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("## ")) within = line == "## `" + command + " --json`";
        if (!within || !line.starts_with("| `")) continue;
        const std::size_t end = line.find(" | ", 2);
        for (std::size_t open = line.find('`'); open < end;) {
            const std::size_t close = line.find('`', open + 1);
            members[line.substr(open + 1, close - open - 1)] = line.substr(end);
            open = line.find('`', close + 1);
        }
    }
    return members;
}

/// Adds the names of those that have no row of their own, and that the row of what they are in does not name.
inline void find_undocumented(const nlohmann::json& value, const std::string& path, const std::string& says,
                              const std::map<std::string, std::string>& members,
                              std::vector<std::string>& missing) {
    if (value.is_array())
        for (const nlohmann::json& item : value)
            if (item.is_object()) find_undocumented(item, path, says, members, missing);
    if (!value.is_object()) return;
    for (const auto& [name, inner] : value.items()) {
        const std::string leaf = name + (inner.is_array() ? "[]" : ""), place = path + leaf;
        const auto row = members.find(place), next = members.lower_bound(place + ".");
        if (row != members.end())
            find_undocumented(inner, place + ".", row->second, members, missing);
        else if (says.find("`" + leaf + "`") != std::string::npos)
            find_undocumented(inner, place + ".", says, members, missing);
        else if (next != members.end() && next->first.starts_with(place + "."))
            find_undocumented(inner, place + ".", "", members, missing);
        else
            missing.push_back(place);
    }
}

inline std::vector<std::string> undocumented_members(const nlohmann::json& report,
                                                     const std::string& command) {
    std::vector<std::string> missing;
    find_undocumented(report, "", "", documented_members(command), missing);
    return missing;
}

}  // namespace mantissa::testing
