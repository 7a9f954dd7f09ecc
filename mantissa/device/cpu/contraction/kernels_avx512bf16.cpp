// The contraction's inner kernels for two operands of BF16 on CPUs with AVX512_BF16.
#include "mantissa/device/cpu/contraction/dot_kernels.h"
#include "mantissa/device/cpu/contraction/lanes_avx512bf16.h"
#include "mantissa/device/cpu/contraction/pack_avx512.h"
#include "mantissa/device/cpu/contraction/panel_kernels.h"

namespace mantissa::inline v0::on_cpu {

namespace {

template <int Vectors>
ContractionKernels kernels() {
    using Product = PanelProduct<Avx512Bf16Lanes, dot_height, Vectors>;
    ContractionKernels kernels = dot_kernels();
    kernels.width = Product::width;
    kernels.multiply_row = row_product_avx512();
    kernels.multiply_rows_of_pairs = row_product_of_pairs_avx512_bf16();
    kernels.finish = finish_block_avx512bf16;
    kernels.multiply = Product::template multiply<>;
    kernels.multiply_in_place = Product::template multiply_in_place<>;
    kernels.multiply_across = Product::template multiply_across<>;
    kernels.pack_a = paired_panels_avx512<dot_height>();
    kernels.pack_b = paired_panels_avx512<Product::width>();
    kernels.gather = gather_avx512;
    return kernels;
}

}  // namespace

ContractionKernels contraction_kernels_avx512_bf16(PanelWidth width) {
    return width == PanelWidth::narrow ? kernels<2>() : kernels<3>();
}

}  // namespace mantissa::on_cpu
