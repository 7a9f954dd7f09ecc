// The table of row kernels of each level, and which one a machine uses.
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels_generic() {
    static const RowKernels table = {.name = "generic",
                                     .norm = norm_kernels_generic(),
                                     .softmax = softmax_kernels_generic(),
                                     .element = element_kernels_generic()};
    return table;
}

const RowKernels& row_kernels_avx2() {
    static const RowKernels table = {.name = "avx2",
                                     .norm = norm_kernels_avx2(),
                                     .softmax = softmax_kernels_avx2(),
                                     .element = element_kernels_avx2()};
    return table;
}

const RowKernels& row_kernels_avx512() {
    static const RowKernels table = {.name = "avx512",
                                     .norm = norm_kernels_avx512(),
                                     .softmax = softmax_kernels_avx512(),
                                     .element = element_kernels_avx512()};
    return table;
}

const RowKernels& row_kernels_avx512_bf16() {
    static const RowKernels table = {.name = "avx512_bf16",
                                     .norm = norm_kernels_avx512bf16(),
                                     .softmax = softmax_kernels_avx512bf16(),
                                     .element = element_kernels_avx512bf16()};
    return table;
}

const RowKernels& row_kernels(Isa isa) {
    return of_level(isa, row_kernels_generic, row_kernels_avx2, row_kernels_avx512,
                    row_kernels_avx512_bf16)();
}

}  // namespace mantissa::on_cpu
