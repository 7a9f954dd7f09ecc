// The contraction's inner kernels for AVX2 and FMA.
#include "mantissa/device/cpu/contraction/lanes_avx2.h"
#include "mantissa/device/cpu/contraction/pack_ymm.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

// 16 registers: 6 x 2 of sums, two of b, one of a. A step along the depth is 12 multiply-adds, 6 cycles on
// two units, for 2 + 6 loads and 20 instructions in all; 12 sums in flight cover the latency of 4 or 5
// cycles.
constexpr int height = 6;
using Product = PanelProduct<Avx2Lanes, height, 2>;

// For processors with AVX2 from the first on: L1 of 32 KB, L2 of 256. 320 deep, panels of b and a are 20 and
// 7.5 KB, and stay in L1 together; a block of a, and two panels of b, the next one being on its way, are
// 232 KB of L2. With 1 MB of L2, chunks and blocks of 256 to 512 deep and 168 to 384 KB differ by less than a
// point.
constexpr std::int64_t depth_in_l1 = 320;
constexpr std::int64_t block_bytes_in_l2 = 192 << 10;

}  // namespace

ContractionKernels contraction_kernels_avx2() {
    return {.height = height,
            .width = Product::width,
            .max_depth = depth_in_l1,
            .max_block_bytes = block_bytes_in_l2,
            .finish = finish_block_avx2,
            .multiply = Product::multiply<>,
            .multiply_in_place = Product::multiply_in_place<>,
            .multiply_across = Product::multiply_across<>,
            .pack_a = widened_panels_ymm<height>(),
            .pack_b = widened_panels_ymm<Product::width>(),
            .multiply_row = row_product_avx2()};
}

}  // namespace mantissa::on_cpu
