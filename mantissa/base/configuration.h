// A configuration as data: settings by name, in the order in which they are shown. What two runs must have in
// common is compared and printed setting by setting.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace mantissa::inline v0 {

struct Setting {
    std::string name;
    std::variant<bool, std::int64_t, double, std::string> value;

    friend bool operator==(const Setting&, const Setting&) = default;
};

using Configuration = std::vector<Setting>;

}  // namespace mantissa
