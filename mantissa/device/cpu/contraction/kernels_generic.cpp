// The contraction's inner kernels in plain C++, for any x86-64 CPU and as a model for the others.
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

}  // namespace mantissa::on_cpu
