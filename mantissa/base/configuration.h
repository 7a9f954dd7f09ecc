// Settings as data: what a model or an optimizer is, by name and value, to be saved, compared and shown
// without knowing of which.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace mantissa {

struct Setting {
    std::string name;
    std::variant<bool, std::int64_t, double, std::string> value;
    friend bool operator==(const Setting&, const Setting&) = default;
};

/// In the order in which they are shown.
using Configuration = std::vector<Setting>;

}  // namespace mantissa
