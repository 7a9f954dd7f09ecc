// Gathering an operand from images with 512-bit vectors.
#include <utility>

#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/pixel_words.h"
#include "mantissa/device/cpu/contraction/window.h"
#include "mantissa/device/cpu/intrinsics.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <int ElementBytes>
struct Elements;

template <>
struct Elements<2> {
    using Mask = __mmask32;
    static __m512i load(Mask some, const std::byte* from) { return _mm512_maskz_loadu_epi16(some, from); }
    static void store(Mask some, std::byte* to, __m512i line) { _mm512_mask_storeu_epi16(to, some, line); }
};

template <>
struct Elements<4> {
    using Mask = __mmask16;
    static __m512i load(Mask some, const std::byte* from) { return _mm512_maskz_loadu_epi32(some, from); }
    static void store(Mask some, std::byte* to, __m512i line) { _mm512_mask_storeu_epi32(to, some, line); }
};

/// The elements of the piece that lie in the image, for sixteen rows from `row` on, a bit each: `low` to
/// `high`, and none of a pixel row outside. Counted from the beginning of a row of the image, elements of its
/// pixels are 0 to `row_elements`.
__m512i inside(const WindowPiece& piece, std::int64_t row) {
    const auto all = [](std::int64_t number) { return _mm512_set1_epi32(static_cast<int>(number)); };
    const __m512i zero = _mm512_setzero_si512(), one = all(1), length = all(piece.length);
    const __m512i pixel_row = _mm512_add_epi32(_mm512_load_si512(piece.corners->row + row), all(piece.down));
    const __m512i pixel = _mm512_add_epi32(_mm512_load_si512(piece.corners->column + row), all(piece.across));
    const __m512i first =
        _mm512_add_epi32(_mm512_mullo_epi32(pixel, all(piece.channels)), all(piece.element));
    const auto within = [&](__m512i at) { return _mm512_min_epi32(_mm512_max_epi32(at, zero), length); };
    const __m512i low = within(_mm512_sub_epi32(zero, first));
    const __m512i high = within(_mm512_sub_epi32(all(piece.row_elements), first));
    const __mmask16 there = _mm512_cmplt_epu32_mask(pixel_row, all(piece.image_rows));
    return _mm512_maskz_sub_epi32(there, _mm512_sllv_epi32(one, high), _mm512_sllv_epi32(one, low));
}

// Lines so much further on are asked for meanwhile: windows of neighbours follow one another in memory,
// but hardware does not foresee several lines of each. A gradient of 64 filters at 224 x 224 took 22 ms
// for 31.
constexpr std::int64_t bytes_ahead = 4096;

/// The pieces of a pixel are inside of the image, or none is. All but the last row of a piece are followed by
/// others, which are written later, so a whole line may be written where the rows are lines.
template <int ElementBytes>
void gather_elements(const WindowPiece& piece) {
    using Line = Elements<ElementBytes>;
    constexpr std::int64_t line = 64 / ElementBytes;
    alignas(64) std::uint32_t masks[max_corners];
    for (std::int64_t row = 0; row < piece.rows; row += 16)
        _mm512_store_si512(masks + row, inside(piece, row));
    const auto some = static_cast<typename Line::Mask>((std::uint64_t{1} << piece.length) - 1);
    const bool whole = piece.length == line;
    std::byte* to = piece.to;
    for (std::int64_t row = 0; row < piece.rows; ++row, to += piece.next_row) {
        const std::byte* from = piece.images + piece.corners->element[row] * ElementBytes;
        const auto mask = static_cast<typename Line::Mask>(masks[row]);
        std::byte* there = to;
        for (std::int64_t i = 0; i < piece.count; ++i, from += 64, there += piece.next_piece) {
            const __m512i elements = Line::load(mask, from);
            _mm_prefetch(from + bytes_ahead, _MM_HINT_T0);
            if (whole)
                _mm512_storeu_si512(there, elements);
            else
                Line::store(some, there, elements);
        }
    }
}

/// Sixteen words of two pixels, from channel 0 or 16 on: each channel of the first, then of the second.
__m512i words_of(__m512i before, __m512i here, int channel) {
    const __m512i channels = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(channel));
    const __m512i from_here = _mm512_slli_epi32(_mm512_add_epi32(channels, _mm512_set1_epi32(32)), 16);
    return _mm512_permutex2var_epi16(before, _mm512_or_si512(channels, from_here), here);
}

}  // namespace

void pack_pixels_avx512(const PixelRun& run) {
    __m512i before = _mm512_loadu_si512(run.before);
    const std::byte* from = run.first;
    std::byte *to = run.to, *to_next = run.to_next;
    for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel, from += run.step) {
        const __m512i here = _mm512_loadu_si512(from);
        _mm_prefetch(from + bytes_ahead, _MM_HINT_T0);
        _mm512_storeu_si512(to, words_of(before, here, 0));
        _mm512_storeu_si512(to + 64, words_of(before, here, 16));
        before = here;
        to += PixelWords::word_bytes;
        std::swap(to, to_next);
    }
}

void gather_avx512(const WindowPiece& piece) {
    piece.element_bytes == 2 ? gather_elements<2>(piece) : gather_elements<4>(piece);
}

}  // namespace mantissa::on_cpu
