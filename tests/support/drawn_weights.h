// Weights derived from their names, as bench/peers/family_cases.py draws them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::testing {

/// Numbers in [-1, 1) derived from a name: splitmix64, started at its FNV-1a hash.
inline std::vector<double> uniform(std::string_view name, std::size_t count) {
    std::uint64_t state = 0xCBF29CE484222325;
    for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t z = state += 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        z ^= z >> 31;
        values.push_back(std::ldexp(static_cast<double>(z >> 40), -23) - 1);
    }
    return values;
}

/// A parameter's values, as family_cases.py draws them.
inline std::vector<float> drawn(const std::string& name, std::size_t count, bool one_plus) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool small = has("norm") || name.ends_with("bias");
    const double size = small ? 0.25 : has("layers.") ? 0.375 : one_plus ? 0.025 : 0.125;
    const double centre = has("norm") && name.ends_with("weight") && !one_plus ? 1 : 0;
    std::vector<float> values;
    for (const double x : uniform(name, count)) values.push_back(static_cast<float>(centre + size * x));
    return values;
}

}  // namespace mantissa::testing
