// The contraction's inner kernels for AVX-512.
#include "mantissa/device/cpu/contraction/lanes_avx512.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// 32 registers: 8 x 3 of sums, three of b, one of a. A step along the depth is 24 multiply-adds, 12 cycles on
// two units; 24 sums in flight cover the latency of 4 cycles three times.
constexpr int height = 8;

template <int Vectors>
ContractionKernels kernels() {
    using Product = PanelProduct<Avx512Lanes, height, Vectors>;
    return {.height = height,
            .width = Product::width,
            .finish = finish_block_avx512,
            .multiply = Product::template multiply<>,
            .multiply_in_place = Product::template multiply_in_place<>,
            .multiply_across = Product::template multiply_across<>,
            .pack_a = widened_panels_avx512<height>(),
            .pack_b = widened_panels_avx512<Product::width>(),
            .gather = gather_avx512,
            .multiply_row = row_product_avx512()};
}

}  // namespace

ContractionKernels contraction_kernels_avx512(PanelWidth width) {
    return width == PanelWidth::narrow ? kernels<2>() : kernels<3>();
}

}  // namespace mantissa::on_cpu
