// The contraction's inner kernels for AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::cpu {

namespace {

// 16 registers: 6 x 2 of sums, two of b, one of a. A step along the depth is 12 multiply-adds, 6 cycles on
// two units, for 2 + 6 loads and 20 instructions in all; 12 sums in flight cover the latency of 4 or 5
// cycles.
constexpr int height = 6;
using Product = PanelProduct<Avx2Lanes, height, 2>;

}  // namespace

ContractionKernels contraction_kernels_avx2() {
    return {.height = height,
            .width = Product::width,
            .finish = finish_block_avx2,
            .multiply = Product::multiply<>,
            .pack_a = widened_panels_ymm<height>(),
            .pack_b = widened_panels_ymm<Product::width>(),
            .multiply_row = row_product_avx2()};
}

}  // namespace mantissa::cpu
