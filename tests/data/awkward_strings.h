// Random and awkward strings, and hashes of the tokens that they become: the twin of
// bench/peers/awkward_strings.py.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/data/tokenizer.h"
#include "mantissa/data/unicode.h"
#include "tests/data/tokenizer_test_data.h"

namespace mantissa {

struct Random {  // splitmix64
    std::uint64_t state;
    std::uint64_t below(std::uint64_t bound) {
        state += 0x9E3779B97F4A7C15;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return (z ^ (z >> 31)) % bound;
    }
};

inline std::uint64_t characters_of(std::string_view text) {
    std::uint64_t count = 0;
    for (std::size_t at = 0; at < text.size(); ++count) at += decode_utf8(text, at).length;
    return count;
}

/// String `number` of the fragments and ranges that a fixture holds.
inline std::string awkward_string(const nlohmann::json& fixture, std::uint64_t number) {
    const auto& fragments = fixture["fragments"];
    const auto& ranges = fixture["ranges"];
    Random random{number};
    std::string text;
    const auto parts = 1 + random.below(12);
    for (std::uint64_t part = 0; part < parts; ++part) {
        const auto kind = random.below(4);
        if (kind < 2) {
            text += fragments[random.below(fragments.size())].get<std::string>();
        } else if (kind == 2) {
            const auto& range = ranges[random.below(ranges.size())];
            const auto first = range[0].get<std::uint64_t>(), last = range[1].get<std::uint64_t>();
            const auto count = 1 + random.below(6);
            for (std::uint64_t i = 0; i < count; ++i)
                append_utf8(text, static_cast<char32_t>(first + random.below(last - first + 1)));
        } else {
            const auto fragment = fragments[random.below(fragments.size())].get<std::string>();
            const auto times = 1 + random.below(40);
            for (std::uint64_t i = 0; i < times; ++i) text += fragment;
        }
    }
    return text;
}

inline constexpr std::uint64_t fnv_start = 0xCBF29CE484222325;

inline std::uint64_t fnv(std::uint64_t hash, std::uint8_t byte) { return (hash ^ byte) * 0x100000001B3; }

inline std::uint64_t hash_of_ids(std::span<const TokenId> ids) {
    std::uint64_t hash = fnv_start;
    for (const TokenId id : ids)
        for (int shift = 0; shift < 32; shift += 8) hash = fnv(hash, static_cast<std::uint8_t>(id >> shift));
    return hash;
}

inline std::string hexadecimal(std::uint64_t value) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
    return digits;
}

}  // namespace mantissa
