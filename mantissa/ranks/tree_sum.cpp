#include "mantissa/ranks/tree_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "mantissa/base/float_environment.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::int64_t block = 512;  // numbers: those of each level stay in the first cache
using Block = std::array<float, block>;

void add(float* to, const float* first, const float* second, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = first[i] + second[i];
}

void load(float* to, const float* from, std::int64_t count) { std::copy_n(from, count, to); }
void load(float* to, const BF16* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_f32(from[i]);
}

/// Sums terms[first, last) from element `from` on.
template <class T>
void sum_into(float* sum, std::span<const T* const> terms, std::int64_t from, std::int64_t count,
              std::vector<Block>& levels) {
    if (terms.size() == 1) {
        load(sum, terms[0] + from, count);
        return;
    }
    const std::size_t half = std::bit_ceil(terms.size()) / 2;
    const auto level = static_cast<std::size_t>(std::bit_width(terms.size() - 1)) - 1;
    sum_into(sum, terms.first(half), from, count, levels);
    sum_into(levels[level].data(), terms.subspan(half), from, count, levels);
    add(sum, sum, levels[level].data(), count);
}

template <class T>
void sum_of_terms(std::span<const T* const> terms, std::int64_t count, float* sum) {
    const FlushSubnormals flush;  // as kernels do
    std::vector<Block> levels(static_cast<std::size_t>(std::bit_width(terms.size())));
    Block whole;
    for (std::int64_t from = 0; from < count; from += block) {
        const std::int64_t here = std::min(block, count - from);
        sum_into(whole.data(), terms, from, here, levels);
        std::copy_n(whole.data(), here, sum + from);  // which may be one of the terms
    }
}

}  // namespace

void tree_sum(std::span<const float* const> terms, std::int64_t count, float* sum) {
    sum_of_terms(terms, count, sum);
}

void tree_sum(std::span<const BF16* const> terms, std::int64_t count, float* sum) {
    sum_of_terms(terms, count, sum);
}

}  // namespace mantissa
