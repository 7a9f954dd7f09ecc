#include "mantissa/device/cpu/kernels/attention_time.h"

#include <algorithm>
#include <string_view>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Nanoseconds of a pair of a query and a key: a part that does not depend on the size of a head, and one for
/// each of its elements.
struct PairTime {
    double own = 0, of_element = 0;

    double of(std::int64_t head_size) const { return own + of_element * static_cast<double>(head_size); }
};

struct PassTimes {
    PairTime whole;  ///< of a pair of its blocks, seen or not
    PairTime parts;  ///< of any pair
    double of_row;   ///< of an element of a query, either way: packing, transposing and storing
};

struct LevelTimes {
    std::string_view kernels;
    PassTimes forward, backward;
};

// bench/attention_lines.cpp at 16 to 256 positions and heads of 32 to 128, on one core of a Zen 4 at 2.6 GHz:
// pairs from the longest texts, rows from the rest of the time of the shortest. Work on scores is done either
// way, and left out. The tiles of AMX were measured on no such text.
constexpr LevelTimes measured[] = {
    {"generic", {{8, 0.18}, {13.5, 0.14}, 2}, {{8, 0.37}, {1.5, 0.3}, 3}},
    {"avx2", {{0.6, 0.056}, {1.5, 0.052}, 0.8}, {{0.2, 0.135}, {2, 0.097}, 1.2}},
    {"avx512", {{0.4, 0.046}, {1, 0.04}, 0.6}, {{0.2, 0.112}, {0.3, 0.09}, 1}},
    {"avx512_bf16", {{0, 0.032}, {0.9, 0.028}, 0.6}, {{0.5, 0.06}, {0.7, 0.047}, 0.9}}};

/// Whether any pair of a block of the table is computed.
bool is_seen(const AttentionSize& s, const BlockTable& table, std::int64_t row, std::int64_t column) {
    const std::int64_t last_query = std::min(s.queries, (row + 1) * table_positions) - 1;
    if (s.causal && column * table_positions > last_query + s.keys - s.queries) return false;
    return !table.blocks || table.blocks[row * ceil_div(s.keys, table_positions) + column] != Sees::nothing;
}

/// Pairs of a head in blocks of queries, all their lanes, and blocks of keys.
double forward_pairs(const AttentionSize& s, const BlockTable& table) {
    static_assert(query_lanes == table_positions);
    double pairs = 0;
    for (std::int64_t row = 0; row < ceil_div(s.queries, table_positions); ++row)
        for (std::int64_t column = 0; column < ceil_div(s.keys, table_positions); ++column)
            if (is_seen(s, table, row, column))
                pairs += static_cast<double>(query_lanes *
                                             std::min(table_positions, s.keys - column * table_positions));
    return pairs;
}

/// Pairs of blocks of keys, all their lanes, and of the queries that see any of them.
double backward_pairs(const AttentionSize& s, const BlockTable& table) {
    constexpr std::int64_t columns = key_lanes / table_positions;
    double pairs = 0;
    for (std::int64_t first = 0; first < ceil_div(s.keys, table_positions); first += columns)
        for (std::int64_t row = 0; row < ceil_div(s.queries, table_positions); ++row) {
            bool seen = false;
            for (std::int64_t column = first;
                 column < std::min(first + columns, ceil_div(s.keys, table_positions)); ++column)
                seen = seen || is_seen(s, table, row, column);
            if (seen)
                pairs += static_cast<double>(key_lanes *
                                             std::min(table_positions, s.queries - row * table_positions));
        }
    return pairs;
}

}  // namespace

std::optional<TimeBesideParts> attention_time(const AttentionKernels& kernels, const AttentionSize& size,
                                              const BlockTable& table, AttentionPass pass) {
    const auto* const level =
        std::ranges::find(measured, std::string_view(kernels.name), &LevelTimes::kernels);
    if (level == std::end(measured)) return std::nullopt;
    const bool forward = pass == AttentionPass::forward;
    const PassTimes& times = forward ? level->forward : level->backward;
    const double computed = forward ? forward_pairs(size, table) : backward_pairs(size, table);
    const auto heads = static_cast<double>(size.sequences * size.heads);
    const double rows = times.of_row * static_cast<double>(size.queries * size.head_size);
    const double all = static_cast<double>(size.queries * size.keys);
    return TimeBesideParts{.kernel = kernels.name,
                           .whole = heads * (computed * times.whole.of(size.head_size) + rows),
                           .parts = heads * (all * times.parts.of(size.head_size) + rows)};
}

}  // namespace mantissa::on_cpu
