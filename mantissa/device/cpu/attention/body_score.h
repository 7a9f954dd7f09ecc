// How the kernels meet a score function: the blocks that are seen, the operands as the function reads them,
// and the calls. See body_products.h for how this file is used.
#pragma once

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/attention/body_movement.h"

namespace mantissa::inline v0::on_cpu {
namespace {

using codegen::ScoreBlock;
using codegen::ScoreFunction;

/// The blocks of a table along one axis, of `lines` neighbours across it together.
struct SeenLine {
    const Sees* blocks = nullptr;  ///< null: everything
    std::int64_t step = 0;         ///< from one block to the next
    std::int64_t across = 0;       ///< from a line to its neighbour
    std::int64_t lines = 1;
    const float* silent = nullptr;  ///< by block: not 0 where the block counts as unseen; null: none does

    bool is_whole() const { return !blocks && !silent; }
    /// Visibility of the block that a position lies in.
    Sees at(std::int64_t position) const {
        if (silent && silent[position / table_positions] != 0) return Sees::nothing;
        if (!blocks) return Sees::everything;
        const Sees* const block = blocks + position / table_positions * step;
        for (std::int64_t line = 1; line < lines; ++line)
            if (block[line * across] != block[0]) return Sees::some;
        return block[0];
    }
};

MANTISSA_LANES std::int64_t table_blocks(std::int64_t positions) {
    return ceil_div(positions, table_positions);
}

MANTISSA_LANES const Sees* table_of(const AttentionSize& s, const Score* score, std::int64_t head) {
    if (!score || !score->table.blocks) return nullptr;
    return score->table.blocks + head / s.heads * score->table.sequence + head % s.heads * score->table.head;
}

/// The line of a forward block's queries, along the keys.
MANTISSA_LANES SeenLine keys_seen(const AttentionSize& s, const Score* score, std::int64_t head,
                                  std::int64_t query) {
    const Sees* const table = table_of(s, score, head);
    if (!table) return {};
    return {table + query / table_positions * table_blocks(s.keys), 1, 0, 1};
}

/// The line of a backward block's keys, along the queries.
MANTISSA_LANES SeenLine queries_seen(const AttentionSize& s, const Score* score, std::int64_t head,
                                     std::int64_t key) {
    const Sees* const table = table_of(s, score, head);
    if (!table) return {};
    constexpr std::int64_t most = key_lanes / table_positions;
    const std::int64_t columns = table_blocks(s.keys), first = key / table_positions;
    return {table + first, columns, 1, columns - first < most ? columns - first : most};
}

MANTISSA_LANES std::int64_t end_of_table_block(std::int64_t position) {
    return (position / table_positions + 1) * table_positions;
}

/// Calls f for ranges of at most `most` positions, which together are the positions that are seen. `trim`
/// cuts a range within one block to the positions from the first that is seen to behind the last. Ranges
/// begin at multiples of Operands::first_unit, with positions that nothing sees where need be.
template <class Trim, class F>
MANTISSA_LANES void for_seen(const SeenLine& line, Range within, std::int64_t most, Trim trim, F f) {
    const auto begin_at = [](std::int64_t position) {
        return position / Operands::first_unit * Operands::first_unit;
    };
    std::int64_t first = begin_at(within.first);
    bool begins = true;  // behind positions that nothing sees
    while (first < within.last) {
        const std::int64_t block_end = end_of_table_block(first);
        if (line.at(first) == Sees::nothing) {
            first = block_end;
            begins = true;
            continue;
        }
        if (begins && line.at(first) == Sees::some) {
            const Range seen = trim(Range{first, block_end < within.last ? block_end : within.last});
            if (seen.first >= seen.last) {
                first = block_end;
                continue;
            }
            first = begin_at(seen.first);
        }
        begins = false;
        std::int64_t last = first;
        const std::int64_t end = within.last - first < most ? within.last : first + most;
        while (last < end && line.at(last) != Sees::nothing)
            last = line.is_whole() ? end : end_of_table_block(last);
        if (last > end) last = end;
        std::int64_t seen_last = last;
        const bool ends = last == within.last || line.at(last) == Sees::nothing;
        if (ends && line.at(last - 1) == Sees::some) {
            const std::int64_t block = (last - 1) / table_positions * table_positions;
            const Range part{block < first ? first : block, last};
            const Range seen = trim(part);
            seen_last = seen.first < seen.last ? seen.last : part.first;
        }
        if (first < seen_last) f(Range{first, seen_last});
        first = last;
    }
}

/// A block's place, and the data of its score function.
struct ScoreMeeting {
    const Score& score;
    std::int64_t sequence, head;  // head: of its sequence
    Range rows;                   // keys forward, queries backward
    std::int64_t first_lane;
    bool lanes_are_queries;
    float* staged;  // [operands, most rows, stride]
};

MANTISSA_LANES std::int64_t first_element(const ScoreMeeting& m, const PairStrides& strides) {
    const std::int64_t query = m.lanes_are_queries ? m.first_lane : m.rows.first;
    const std::int64_t key = m.lanes_are_queries ? m.rows.first : m.first_lane;
    return m.sequence * strides.sequence + m.head * strides.head + query * strides.query + key * strides.key;
}
MANTISSA_LANES std::int64_t lane_step(const ScoreMeeting& m, const PairStrides& strides) {
    return m.lanes_are_queries ? strides.query : strides.key;
}
MANTISSA_LANES std::int64_t row_step(const ScoreMeeting& m, const PairStrides& strides) {
    return m.lanes_are_queries ? strides.key : strides.query;
}

/// Whether lanes are no neighbours in memory: then a function is given a copy that has them as neighbours.
MANTISSA_LANES bool is_staged(std::int64_t step) { return step > 1 || step < -1; }

/// Elements of an operand as lanes of 32 bits: floating ones in FP32, others as integers.
MANTISSA_LANES Float staged_elements(const float* from, int present) {
    return Lanes::load_part(from, present);
}
MANTISSA_LANES Float staged_elements(const BF16* from, int present) {
    return Lanes::load_part(from, present);
}
MANTISSA_LANES Float staged_elements(const FP16* from, int present) {
    return Lanes::load_part(from, present);
}
MANTISSA_LANES Float staged_elements(const std::uint8_t* from, int present) {
    alignas(64) std::int32_t wide[16] = {};
    for (int i = 0; i < present; ++i) wide[i] = from[i];
    return Lanes::load(reinterpret_cast<const float*>(wide));
}

/// A part of an operand: so many rows and lanes, and the elements from one to the next.
struct StagedPart {
    std::int64_t rows, row_step, count, lane_step;
};

/// to[row][lane] = the element of that row and lane, 0 in missing lanes.
template <class T>
void stage(const T* from, const StagedPart& part, const Block& to) {
    if (part.row_step == 1) {
        transpose_into(HeadRows<const T>{from, part.lane_step}, part.count, part.rows, to,
                       [](const T* at, int present) MANTISSA_BODY { return staged_elements(at, present); });
        return;
    }
    alignas(64) float one[16];
    for (std::int64_t r = 0; r < part.rows; ++r)
        for (std::int64_t l = 0; l < to.lanes; ++l) {
            to.row(r)[l] = 0;
            if (l >= part.count) continue;
            Lanes::store(one, staged_elements(from + r * part.row_step + l * part.lane_step, 1));
            to.row(r)[l] = one[0];
        }
}

void stage_operand(const ScoreOperand& operand, std::int64_t first, const StagedPart& part, const Block& to) {
    const auto copy = [&](auto* data) { stage(data + first, part, to); };
    switch (operand.dtype) {
        case DType::bf16:
            return copy(static_cast<const BF16*>(operand.data));
        case DType::f16:
            return copy(static_cast<const FP16*>(operand.data));
        case DType::boolean:
        case DType::u8:
            return copy(static_cast<const std::uint8_t*>(operand.data));
        default:  // 32 bits
            return copy(static_cast<const float*>(operand.data));
    }
}

MANTISSA_LANES std::int64_t bytes_of(DType dtype) {
    switch (dtype) {
        case DType::f64:
        case DType::i64:
            return 8;
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::f16:
        case DType::bf16:
            return 2;
        default:
            return 1;
    }
}

struct MetOperands {
    const std::byte* first[max_score_operands];
    std::int64_t rows[max_score_operands];   // elements
    std::int64_t bytes[max_score_operands];  // of an element
};

void meet_operands(const ScoreMeeting& m, const ScoreBlock& block, std::int64_t max_rows, MetOperands& met) {
    for (std::int64_t i = 0; i < m.score.operand_count; ++i) {
        const ScoreOperand& operand = m.score.operands[i];
        const std::int64_t first = first_element(m, operand.strides);
        if (is_staged(lane_step(m, operand.strides))) {
            float* const to = m.staged + i * max_rows * block.stride;
            stage_operand(operand, first,
                          {.rows = m.rows.last - m.rows.first,
                           .row_step = row_step(m, operand.strides),
                           .count = block.lanes,
                           .lane_step = lane_step(m, operand.strides)},
                          {to, block.stride});
            met.first[i] = reinterpret_cast<const std::byte*>(to);
            met.rows[i] = block.stride;
            met.bytes[i] = 4;
        } else {
            met.bytes[i] = bytes_of(operand.dtype);
            met.first[i] = static_cast<const std::byte*>(operand.data) + first * met.bytes[i];
            met.rows[i] = row_step(m, operand.strides);
        }
    }
}

/// The block as its function sees it, but for its rows. `from`, `scores` and so on are the caller's.
MANTISSA_LANES void place_block(const ScoreMeeting& m, ScoreBlock& block) {
    block.sequence = m.sequence;
    block.head = m.head;
    block.query = m.lanes_are_queries ? m.first_lane : m.rows.first;
    block.key = m.lanes_are_queries ? m.rows.first : m.first_lane;
    block.rows = m.rows.last - m.rows.first;
}

/// The rows of one block from the first that any lane sees to behind the last. Uses that many rows of
/// `scratch`.
Range rows_seen(const ScoreMeeting& m, codegen::ScoreFunction mask, std::int64_t count, const Block& scratch,
                std::int64_t max_rows) {
    if (!mask) return m.rows;
    ScoreBlock block{.from = scratch.data, .scores = scratch.data, .stride = scratch.lanes, .lanes = count};
    place_block(m, block);
    fill(scratch.data, block.rows * scratch.lanes, 0.0f);
    MetOperands met;
    meet_operands(m, block, max_rows, met);
    block.operands = met.first;
    block.operand_rows = met.rows;
    mask(&block);
    Range seen{m.rows.last, m.rows.first};
    for (std::int64_t r = 0; r < block.rows; ++r) {
        alignas(64) float greatest[16];
        Float top = Lanes::load(scratch.row(r));
        for (std::int64_t lane = 16; lane < scratch.lanes; lane += 16)
            top = Lanes::maximum(top, Lanes::load(scratch.row(r) + lane));
        Lanes::store(greatest, top);
        bool any = false;
        for (const float one : greatest) any = any || one > -__builtin_inff();
        if (!any) continue;
        if (seen.first > m.rows.first + r) seen.first = m.rows.first + r;
        seen.last = m.rows.first + r + 1;
    }
    return seen;
}

/// Calls the functions: one for rows that are seen whole, the other for other rows.
struct ScorePair {
    ScoreFunction plain, masked;
};

void call_functions(const ScorePair& functions, const ScoreMeeting& m, const SeenLine& line,
                    const ScoreBlock& whole, const MetOperands& met) {
    std::int64_t first = m.rows.first;
    while (first < m.rows.last) {
        const Sees sees = line.at(first);
        std::int64_t last = first;
        while (last < m.rows.last && line.at(last) == sees)
            last = line.is_whole() ? m.rows.last : end_of_table_block(last);
        if (last > m.rows.last) last = m.rows.last;
        const ScoreFunction function = sees == Sees::everything ? functions.plain : functions.masked;
        const std::int64_t before = first - m.rows.first;
        if (function) {
            const std::byte* operands[max_score_operands];
            for (std::int64_t i = 0; i < m.score.operand_count; ++i)
                operands[i] = met.first[i] + before * met.rows[i] * met.bytes[i];
            ScoreBlock part = whole;
            const std::int64_t floats = before * whole.stride;
            part.from += floats;
            part.scores += floats;
            if (part.slopes) part.slopes += floats;
            if (part.multipliers) part.multipliers += floats;
            (m.lanes_are_queries ? part.key : part.query) += before;
            part.rows = last - first;
            part.operands = operands;
            part.operand_rows = met.rows;
            function(&part);
        }
        first = last;
    }
}

/// Adds a block's contributions to the gradients of the operands.
void call_sums(const ScoreMeeting& m, ScoreBlock block, const MetOperands& met,
               const ScoreGradient* gradients, float* staged) {
    float* to[max_score_gradients];
    std::int64_t rows[max_score_gradients];
    for (std::int64_t i = 0; i < m.score.gradient_count; ++i) {
        const ScoreGradient& gradient = gradients[i];
        if (is_staged(lane_step(m, gradient.strides))) {
            to[i] = staged + i * query_rows * block.stride;
            rows[i] = block.stride;
            fill(to[i], block.rows * block.stride, 0.0f);
        } else {
            to[i] = gradient.data + gradient.first + first_element(m, gradient.strides);
            rows[i] = row_step(m, gradient.strides);
        }
    }
    block.operands = met.first;
    block.operand_rows = met.rows;
    block.gradients = to;
    block.gradient_rows = rows;
    m.score.sums(&block);
    for (std::int64_t i = 0; i < m.score.gradient_count; ++i) {
        const ScoreGradient& gradient = gradients[i];
        const std::int64_t lane = lane_step(m, gradient.strides), row = row_step(m, gradient.strides);
        if (!is_staged(lane)) continue;
        float* const first = gradient.data + gradient.first + first_element(m, gradient.strides);
        for (std::int64_t r = 0; r < block.rows; ++r)
            for (std::int64_t l = 0; l < block.lanes; ++l)
                first[r * row + l * lane] += to[i][r * rows[i] + l];
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
