// The contraction's inner kernels in plain C++, for any x86-64 CPU and as a model for the others.
#include <bit>

#include "mantissa/device/cpu/contraction/lanes_generic.h"
#include "mantissa/device/cpu/contraction/pack_plain.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// Sixteen SSE registers: 4 x 2 of four sums each, two of b, and room for a.
constexpr int height = 4;
using Product = PanelProduct<GenericLanes, height, 2>;

template <int Size>
constexpr PanelKernels panels() {
    constexpr auto along = PanelSource::along_depth, across = PanelSource::across_depth;
    return {
        {{pack_plainly<float, float, Size, 1, along>, pack_plainly<std::uint16_t, float, Size, 1, along>},
         {pack_plainly<float, float, Size, 1, across>, pack_plainly<std::uint16_t, float, Size, 1, across>}}};
}

/// Bytes of a few rows where they lie.
void multiply_byte_rows(const RowProduct& p) {
    const auto* const b = static_cast<const std::int8_t*>(p.b);
    const auto* const rows = static_cast<const std::int8_t*>(p.rows);
    for (std::int64_t j = 0; j < p.cols; ++j)
        for (std::int64_t r = 0; r < p.count; ++r) {
            std::int32_t sum = 0;
            for (std::int64_t k = 0; k < 4 * p.depth; ++k)
                sum += std::int32_t{rows[4 * r * p.row_stride + k]} * std::int32_t{b[4 * j * p.stride + k]};
            p.sums[r * p.sums_stride + j] = std::bit_cast<float>(sum);
        }
}

}  // namespace

ContractionKernels contraction_kernels_generic() {
    return {.height = height,
            .width = Product::width,
            .finish = finish_block_generic,
            .multiply = Product::multiply<>,
            .multiply_in_place = Product::multiply_in_place<>,
            .multiply_across = Product::multiply_across<>,
            .pack_a = panels<height>(),
            .pack_b = panels<Product::width>(),
            .multiply_row = row_product_generic()};
}

ContractionKernels byte_kernels_generic() {
    return {.height = height,
            .width = Product::width,
            .multiply = PanelProduct<GenericS8Lanes, height, 2>::multiply<>,
            .pack_a = panels<height>(),
            .pack_b = panels<Product::width>(),
            .multiply_row = {{{multiply_byte_rows}}}};
}

}  // namespace mantissa::on_cpu
