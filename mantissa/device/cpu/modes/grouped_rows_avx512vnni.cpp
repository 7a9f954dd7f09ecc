// A few rows times a matrix of four bits by groups in dot products of four bytes (vpdpbusd), which take one
// operand for unsigned: numbers of the matrix come 8 too large, and sums begin at the corrections. For one
// row 64 bytes of the matrix take nine operations, so that reading them is the bound.

#include "mantissa/device/cpu/intrinsics.h"
#include "mantissa/device/cpu/modes/fetched_ahead.h"
#include "mantissa/device/cpu/modes/grouped_rows.h"
#include "mantissa/device/cpu/modes/sums_of_four.h"

namespace mantissa::inline v0::on_cpu {

namespace {

/// Four groups of a row of b: 8 more than the numbers of even place, and of odd; for each word the scale.
struct FourGroups {
    __m512i even, odd;
    __m512 scales;

    FourGroups() = default;
    FourGroups(__m512i bytes, __m128i four_scales) {
        const __m512i low = _mm512_set1_epi8(15), turn = _mm512_set1_epi8(8);
        constexpr int turned_and_cut = 0x28;  // (a ^ b) & c
        even = _mm512_ternarylogic_epi32(bytes, turn, low, turned_and_cut);
        odd = _mm512_ternarylogic_epi32(_mm512_srli_epi16(bytes, 4), turn, low, turned_and_cut);
        // Each 128 bits have a group. A BF16 number is the upper half of an FP32 one.
        const __m512i places = _mm512_set_epi32(0x07068080, 0x07068080, 0x07068080, 0x07068080,  //
                                                0x05048080, 0x05048080, 0x05048080, 0x05048080,  //
                                                0x03028080, 0x03028080, 0x03028080, 0x03028080,  //
                                                0x01008080, 0x01008080, 0x01008080, 0x01008080);
        scales = _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_broadcastq_epi64(four_scales), places));
    }
    static FourGroups whole(const std::uint8_t* b, const BF16* scales) {
        return {_mm512_loadu_si512(b), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales))};
    }
    /// Behind the row lies another, or nothing.
    static FourGroups part(const std::uint8_t* b, std::int64_t bytes, const BF16* scales,
                           std::int64_t groups) {
        return {_mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, b),
                _mm_maskz_loadu_epi16(static_cast<__mmask8>((1u << groups) - 1), scales)};
    }
};

/// Adds four groups of some rows of b to the sums of some rows.
template <int Rows, int Columns>
[[gnu::always_inline]] inline void add_groups(const FourOfX* x, const FourGroups (&b)[Columns],
                                              __m512 (&totals)[Rows][Columns]) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
        const __m512i even = _mm512_load_si512(x[r].even), odd = _mm512_load_si512(x[r].odd),
                      corrections = _mm512_load_si512(x[r].corrections);
        const __m512 scales = _mm512_load_ps(x[r].scales);
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            const __m512i sums =
                _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(corrections, b[c].even, even), b[c].odd, odd);
            totals[r][c] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scales, b[c].scales), totals[r][c]);
        }
    }
}

/// The sums of some rows with some columns from j on, by words. All stay in registers: loops over them must
/// vanish, or GCC keeps a copy in memory.
template <Fetch fetch, int Rows, int Columns>
[[gnu::always_inline]] inline void sum_columns(const GroupedRows& p, const FourOfX* x, std::int64_t j,
                                               __m512 (&totals)[Rows][Columns]) {
    const std::uint8_t* const b = p.b + j * p.bytes;
    const BF16* const scales = p.scales + j * p.groups;
    const std::int64_t whole = p.bytes / bytes_together, rest = p.bytes % bytes_together;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) totals[r][c] = _mm512_setzero_ps();
    // At the end of the block the next one's first lines: each block that began with nothing fetched took 0.2
    // us longer.
    const std::int64_t within = fetched_ahead(Columns * p.bytes);
    const bool last = (p.cols - j - Columns) * p.bytes <= within;
    const std::int64_t ahead = last ? within + p.to_next_block : within;
    for (std::int64_t four = 0; four < whole; ++four) {
        FourGroups groups[Columns];
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            const std::uint8_t* const at = b + c * p.bytes + four * bytes_together;
            if (fetch == Fetch::yes) __builtin_prefetch(at + ahead, 0, 2);
            groups[c] = FourGroups::whole(at, scales + c * p.groups + four * groups_together);
        }
        add_groups(x + four * p.count, groups, totals);
    }
    if (rest == 0) return;
    FourGroups groups[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c)
        groups[c] = FourGroups::part(b + c * p.bytes + whole * bytes_together, rest,
                                     scales + c * p.groups + whole * groups_together,
                                     p.groups - whole * groups_together);
    add_groups(x + whole * p.count, groups, totals);
}

/// One row and one column after another, so that memory is read in its order: four columns side by side,
/// which share what is loaded of x, read at nine tenths of the speed. Their sums are made together.
template <Fetch fetch>
void multiply_one_row(const GroupedRows& p, const FourOfX* x, float* sums) {
    for (std::int64_t j = 0; j < p.cols; j += 4) {
        const std::int64_t count = p.cols - j < 4 ? p.cols - j : 4;
        __m512 totals[4][1][1] = {};
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c)
            if (c < count) sum_columns<fetch>(p, x, j + c, totals[c]);
        const __m128 four = sums_of_four(totals[0][0][0], totals[1][0][0], totals[2][0][0], totals[3][0][0]);
        _mm_mask_storeu_ps(sums + j, static_cast<__mmask8>((1u << count) - 1), four);
    }
}

/// Four rows and `Columns` columns, from j on.
template <Fetch fetch, int Columns>
[[gnu::always_inline]] inline void multiply_four_rows(const GroupedRows& p, const FourOfX* x, float* sums,
                                                      std::int64_t j) {
    __m512 totals[4][Columns];
    sum_columns<fetch>(p, x, j, totals);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        alignas(16) float four[4];
        _mm_store_ps(four, sums_of_four(totals[0][c], totals[1][c], totals[2][c], totals[3][c]));
        for (int r = 0; r < 4; ++r) sums[r * p.leading + j + c] = four[r];
    }
}

/// Three columns at a time: twelve sums, and what three columns are, in registers. Four rows of x of a depth
/// of 3,072 are in L1, too, which eight are not.
template <Fetch fetch>
void multiply_four_rows(const GroupedRows& p, const FourOfX* x, float* sums) {
    std::int64_t j = 0;
    for (; j + 3 <= p.cols; j += 3) multiply_four_rows<fetch, 3>(p, x, sums, j);
    for (; j < p.cols; ++j) multiply_four_rows<fetch, 1>(p, x, sums, j);
}

void multiply_grouped_rows(const GroupedRows& p) {
    std::int64_t row = 0;
    for (; row + 4 <= p.count; row += 4) {
        float* const sums = p.sums + row * p.leading;
        if (row == 0)
            multiply_four_rows<Fetch::yes>(p, p.x, sums);
        else
            multiply_four_rows<Fetch::no>(p, p.x + row, sums);
    }
    for (; row < p.count; ++row) {
        float* const sums = p.sums + row * p.leading;
        if (row == 0)
            multiply_one_row<Fetch::yes>(p, p.x, sums);
        else
            multiply_one_row<Fetch::no>(p, p.x + row, sums);
    }
}

}  // namespace

GroupedRowsKernels grouped_rows_avx512_vnni() {
    return {
        .name = "avx512_vnni", .quantize = grouped_rows_avx2().quantize, .multiply = multiply_grouped_rows};
}

}  // namespace mantissa::on_cpu
