// The standard epilogue over the lanes of the row kernels. All levels give the same bits.
#include "mantissa/device/cpu/rows/lanes_of_level.h"
// The lanes come first, since the files below use them.
#include <cstdint>
#include <type_traits>

#include "mantissa/device/cpu/contraction/epilogue_kernels.h"
#include "mantissa/device/cpu/rows/body_loops.h"

namespace mantissa::inline v0::on_cpu {

namespace {

inline void add_row(float* sums, const float* terms, std::int64_t count) {
    for_lanes(count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        store(sums + c, Lanes::add(load(sums + c, extent), load(terms + c, extent)), extent, false);
    });
}

/// A line that is stored past the caches in two parts at different times is expected to cost more than it
/// saves.
inline bool are_whole_lines(const EpilogueBlock& block) {
    const std::int64_t bytes = block.out_dtype == DType::f32 ? 4 : 2;
    return reinterpret_cast<std::uintptr_t>(block.out) % 64 == 0 && block.cols * bytes % 64 == 0 &&
           block.out_ld * bytes % 64 == 0;
}

/// Addends of the sums, at the sums' places, `ld` elements from one row to the next; 0 for a bias.
template <class Term>
struct Terms {
    const Term* first;
    std::int64_t ld;
};

/// The sums with the terms, if there are any, as they are stored.
template <bool Stream, class Term, class T>
MANTISSA_LANES void store_rows(const EpilogueBlock& block, Terms<Term> terms, T* out) {
    for (std::int64_t i = 0; i < block.rows; ++i) {
        const float* const sums = block.sums + i * block.ld;
        T* const to = out + i * block.out_ld;
        const auto value = [&](std::int64_t c, auto extent) MANTISSA_BODY {
            const Float sum = load(sums + c, extent);
            if constexpr (std::is_void_v<Term>)
                return sum;
            else
                return Lanes::add(sum, load(terms.first + i * terms.ld + c, extent));
        };
        if constexpr (Stream) {  // rows are whole lines: none begins inside of one
            std::int64_t c = 0;
            for (; c + 32 <= block.cols; c += 32)
                store_results(to + c, value(c, Whole{}), value(c + 16, Whole{}), true);
            if (c < block.cols) store(to + c, value(c, Whole{}), Whole{}, true);
        } else {
            for_stored_lanes(to, block.cols, false, value);
        }
    }
}

template <class Term>
inline void store_sums(const EpilogueBlock& block, Terms<Term> terms) {
    const bool stream =
        block.streaming && block.out != block.sums && block.out != block.addend && are_whole_lines(block);
    with_type(block.out_dtype, [&](auto* element) {
        auto* const out = static_cast<decltype(element)>(block.out);
        if (stream)
            store_rows<true>(block, terms, out);
        else
            store_rows<false>(block, terms, out);
    });
}

}  // namespace

/// An addend beside a bias is added in place.
void MANTISSA_OF_LEVEL(finish_block)(const EpilogueBlock& block) {
    if (block.addend && !block.bias) return store_sums(block, Terms<float>{block.addend, block.addend_ld});
    if (!block.bias) {
        if (block.out != block.sums) store_sums(block, Terms<void>{nullptr, 0});
        return;
    }
    for (std::int64_t i = 0; block.addend && i < block.rows; ++i)
        add_row(block.sums + i * block.ld, block.addend + i * block.addend_ld, block.cols);
    with_type(block.bias_dtype, [&](auto* element) {
        using Term = std::remove_pointer_t<decltype(element)>;
        store_sums(block, Terms<Term>{static_cast<const Term*>(block.bias), 0});
    });
}

}  // namespace mantissa::on_cpu
