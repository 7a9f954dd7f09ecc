// A few rows times a matrix of four bits by groups over the lanes of a level. In an anonymous namespace, so
// that each source keeps its own copy, compiled for its own level.
//
// Lanes: `words` of a row of b at a time; `Floats`, a sum for each; `Numbers`, those words and their scales,
// 8 more than they are, made of memory by whole() and part(); `rows` and `columns`, whose sums stay in
// registers; zero, add and store.
#pragma once

#include "mantissa/device/cpu/contraction/rows_along_body.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// The sums of some rows with some columns from j on, by words. All stay in registers: loops over them must
/// vanish, or GCC keeps a copy in memory.
template <class Lanes, Fetch fetch, int Rows, int Columns>
[[gnu::always_inline]] inline void sum_columns(const GroupedRows& p, const FourOfX* x, std::int64_t j,
                                               typename Lanes::Floats (&totals)[Columns][Rows]) {
    constexpr std::int64_t bytes = 4 * Lanes::words, groups = bytes / (bytes_together / groups_together);
    const std::uint8_t* const b = p.b + j * p.bytes;
    const BF16* const scales = p.scales + j * p.groups;
#pragma GCC unroll 3
    for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) totals[c][r] = Lanes::zero();
    // At the end of the block the next one's first lines: each block that began with nothing fetched took 0.2
    // us longer.
    const std::int64_t within = fetched_ahead(Columns * p.bytes);
    const bool last = (p.cols - j - Columns) * p.bytes <= within;
    const std::int64_t ahead = last ? within + p.to_next_block : within;
    const auto add = [&](std::int64_t step, auto load) __attribute__((always_inline)) {
        typename Lanes::Numbers numbers[Columns];
#pragma GCC unroll 3
        for (int c = 0; c < Columns; ++c) {
            const std::uint8_t* const at = b + c * p.bytes + step * bytes;
            if (fetch == Fetch::yes) __builtin_prefetch(at + ahead, 0, 2);
            numbers[c] = load(at, scales + c * p.groups + step * groups);
        }
        const std::int64_t word = step * Lanes::words % words_together;
        const FourOfX* const four = x + step * Lanes::words / words_together * p.count;
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 3
            for (int c = 0; c < Columns; ++c)
                totals[c][r] = Lanes::add(totals[c][r], four[r], word, numbers[c]);
    };
    const std::int64_t steps = p.bytes / bytes, rest = p.bytes % bytes;
    for (std::int64_t step = 0; step < steps; ++step)
        add(
            step, [](const std::uint8_t* at, const BF16* of_groups)
                      __attribute__((always_inline)) { return Lanes::whole(at, of_groups); });
    if (rest > 0)
        add(
            steps, [&](const std::uint8_t* at, const BF16* of_groups) __attribute__((always_inline)) {
                return Lanes::part(at, rest, of_groups, p.groups - steps * groups);
            });
}

/// Some rows and `Columns` columns, from j on.
template <class Lanes, Fetch fetch, int Rows, int Columns>
[[gnu::always_inline]] inline void multiply_columns(const GroupedRows& p, std::int64_t row, std::int64_t j) {
    typename Lanes::Floats totals[Columns][Rows];
    sum_columns<Lanes, fetch>(p, p.x + row, j, totals);
#pragma GCC unroll 3
    for (int c = 0; c < Columns; ++c) Lanes::store(totals[c], p.sums + row * p.leading + j + c, p.leading);
}

template <class Lanes, Fetch fetch>
void multiply_some_rows(const GroupedRows& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + Lanes::columns <= p.cols; j += Lanes::columns)
        multiply_columns<Lanes, fetch, Lanes::rows, Lanes::columns>(p, row, j);
    for (; j < p.cols; ++j) multiply_columns<Lanes, fetch, Lanes::rows, 1>(p, row, j);
}

/// One row and one column after another, so that memory is read in its order: four columns side by side,
/// which share the loads of x, read at nine tenths of the speed. Their sums are made together.
template <class Lanes, Fetch fetch>
void multiply_one_row(const GroupedRows& p, std::int64_t row) {
    std::int64_t j = 0;
    for (; j + 4 <= p.cols; j += 4) {
        typename Lanes::Floats totals[4][1][1];
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) sum_columns<Lanes, fetch>(p, p.x + row, j + c, totals[c]);
        const typename Lanes::Floats four[4] = {totals[0][0][0], totals[1][0][0], totals[2][0][0],
                                                totals[3][0][0]};
        Lanes::store(four, p.sums + row * p.leading + j, 1);
    }
    for (; j < p.cols; ++j) multiply_columns<Lanes, fetch, 1, 1>(p, row, j);
}

/// The first rows fetch the matrix; the others find it in L2.
template <class Lanes>
void multiply_grouped_rows(const GroupedRows& p) {
    std::int64_t row = 0;
    for (; row + Lanes::rows <= p.count; row += Lanes::rows)
        row == 0 ? multiply_some_rows<Lanes, Fetch::yes>(p, row)
                 : multiply_some_rows<Lanes, Fetch::no>(p, row);
    for (; row < p.count; ++row)
        row == 0 ? multiply_one_row<Lanes, Fetch::yes>(p, row) : multiply_one_row<Lanes, Fetch::no>(p, row);
}

}  // namespace

}  // namespace mantissa::on_cpu
